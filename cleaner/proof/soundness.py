"""Proves the properties of a log that need no cleaning.

- Every batch is whole, its CRC is right, and offsets rise from batch to batch and within them.
- Below the cleaner's checkpoint each key has one record, and no record is left that a tombstone
  there has deleted.
- Every index entry leads to its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from odradek.cleaner.proof.guarantees import KEYS_MAX, Finding, Violation
from odradek.cleaner.proof.snapshot import HeldSegment, Snapshot
from odradek.cleaner.proof.stored import AbortedRanges, Stored, read_stored
from odradek.cleaner.rules.key_tokens import token_of
from odradek.dataclass import dataclass
from odradek.protocol.batches import Record
from odradek.protocol.control import ControlType, decode_control
from odradek.protocol.errors import ProtocolError
from odradek.storage.errors import CorruptFile
from odradek.storage.files import FileSystem
from odradek.storage.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from odradek.storage.segment import INDEX, TIME_INDEX, TXN_INDEX
from odradek.storage.transactions import parse_aborted

INTACT = "every batch is as it was written, and offsets rise"
ONE_RECORD = "below the cleaner's checkpoint each key has one record"
NO_GHOSTS = "below the cleaner's checkpoint no record is left that a tombstone deleted"
INDEXES_RIGHT = "every index entry leads to its batch"


def prove_indexes(
    snapshot: Snapshot, fs: FileSystem, before_io: Callable[[int], None]
) -> list[Finding]:
    """Prove that batches are intact and that indexes lead to them, segment by segment.

    Raises DiskFailure, and the errors of `before_io`.
    """
    batch_count = entry_count = 0
    broken: Violation | None = None
    wrong: Violation | None = None
    for held in snapshot.segments:
        check = _IndexCheck(held, fs, is_active=held is snapshot.segments[-1])
        try:
            for batch in read_stored(held.batches, held.offsets, before_io):
                batch_count += 1
                check.meet(batch, _check_offsets(batch, snapshot.decompressed_bytes_max))
            check.end()
        except CorruptFile as damage:
            broken = broken or Violation(check.end_offset, None, str(damage))
        entry_count += check.count
        if not held.segment.suffix:  # with one it was replaced, and another may own its files
            wrong = wrong or check.lie
    return [
        Finding(INTACT, batch_count, broken, "batches"),
        Finding(INDEXES_RIGHT, entry_count, wrong, "entries"),
    ]


def prove_clean_section(
    snapshot: Snapshot,
    checkpoint: int,
    before_io: Callable[[int], None],
    keys_max: int = KEYS_MAX,
) -> list[Finding]:
    """Prove that the log is clean before the cleaner's checkpoint.

    Keeps each key there in memory, in several rounds when there are more than `keys_max`. Raises
    CorruptFile, and the errors of `before_io`.
    """
    shares: list[_Share] = []
    rounds = 1
    while len(shares) < rounds:
        share = _clean_share(snapshot, checkpoint, before_io, len(shares), rounds, keys_max)
        if share is None:  # more keys than expected: begin again with smaller shares
            shares, rounds = [], 2 * rounds
        else:
            shares.append(share)
    violations = [one for share in shares for one in share.violations]
    ghosts = [one for one, is_ghost in violations if is_ghost]
    doubles = [one for one, is_ghost in violations if not is_ghost]
    return [
        Finding(ONE_RECORD, sum(one.records for one in shares), _first(doubles)),
        Finding(NO_GHOSTS, sum(one.tombstones for one in shares), _first(ghosts), "tombstones"),
    ]


@dataclass(slots=True)
class _Share:
    """The result for a share of the keys."""

    records: int
    tombstones: int
    violations: list[tuple[Violation, bool]]  # the first of each kind


def _clean_share(
    snapshot: Snapshot,
    checkpoint: int,
    before_io: Callable[[int], None],
    turn: int,
    rounds: int,
    keys_max: int,
) -> _Share | None:
    """Find keys with two records; None when there are more keys than may be kept."""
    aborted = AbortedRanges(snapshot.aborted)
    share = _Share(0, 0, [])
    offsets: dict[bytes, int] = {}
    for batch in snapshot.stored(before_io):
        header = batch.header
        if header.base_offset >= checkpoint:
            break
        if header.is_control or aborted.hold(header) or header.last_offset < snapshot.start_offset:
            continue
        for record in batch.each_record(snapshot.decompressed_bytes_max):
            key, offset = record.key, record.offset
            if key is None or not snapshot.start_offset <= offset < checkpoint:
                continue
            if rounds > 1 and hash(key) % rounds != turn:
                continue
            share.records += 1
            is_tombstone = record.value is None
            share.tombstones += is_tombstone
            token = token_of(key)
            before = offsets.get(token)
            if before is not None and all(kind != is_tombstone for _, kind in share.violations):
                what = "tombstone" if is_tombstone else "record"
                text = f"it has a later {what} at offset {offset}"
                share.violations.append((Violation(before, key, text), is_tombstone))
            offsets[token] = offset
            if len(offsets) > keys_max:
                return None
    return share


def _first(violations: list[Violation]) -> Violation | None:
    return min(violations, key=lambda one: one.offset, default=None)


def _check_offsets(batch: Stored, decompressed_bytes_max: int) -> Record | None:
    """Return a batch's first record, None when it has none.

    Raises CorruptFile unless its records have rising offsets within its own.
    """
    header = batch.header
    first: Record | None = None
    least = header.base_offset if header.count >= 0 else 0  # a wrapper lacks its first offset
    for record in batch.each_record(decompressed_bytes_max):
        if not least <= record.offset <= header.last_offset:
            raise batch.damage(f"one of its records has offset {record.offset}")
        least = record.offset + 1
        first = first or record
    return first


class _IndexCheck:
    """Checks a segment's index files against its batches while these are read."""

    def __init__(self, held: HeldSegment, fs: FileSystem, *, is_active: bool) -> None:
        self._base, self._size, self._is_active = (
            held.base_offset, held.batches.size_bytes, is_active,
        )  # fmt: skip
        self.end_offset = held.base_offset
        self.count = 0
        self.lie: Violation | None = None
        # Separate indexes: the segment's own belong to the event loop, which may add to them.
        segment = held.segment
        self._offset_index = OffsetIndex(fs, segment.path(INDEX), self._base).entries
        self._time_index = TimeIndex(fs, segment.path(TIME_INDEX), self._base).entries
        for index in (self._offset_index, self._time_index):
            index.load()
            if index.damage is not None:
                self._fail(index.damage)
        self._at, self._time_at = 0, 0
        self._aborted_path = segment.path(TXN_INDEX)
        self._aborted: dict[int, int] = {}
        if fs.exists(self._aborted_path):
            try:
                found = parse_aborted(fs.read_bytes(self._aborted_path), self._aborted_path)
                self._aborted = {one.last_offset: one.producer_id for one in found}
            except CorruptFile as damage:
                self._fail(damage)

    def meet(self, batch: Stored, first: Record | None) -> None:
        """Check the entries for the next batch; `first` is its first record."""
        header = batch.header
        self._meet_offsets(batch.position, header.last_offset)
        times, relatives = self._time_index.load()
        while self._time_at < len(times):
            offset = self._base + relatives[self._time_at]
            if offset > header.last_offset:
                break
            if times[self._time_at] != header.max_timestamp:
                cause = f"the largest timestamp at offset {offset} is {header.max_timestamp}"
                self._lie(self._time_index.path, self._time_at * TIME_ENTRY.size, cause)
            self._time_at += 1
            self.count += 1
        if header.is_control and header.base_offset in self._aborted:
            producer_id = self._aborted.pop(header.base_offset)
            self.count += 1
            if producer_id != header.producer_id or not _is_abort(first):
                self._lie_of_abort(header.base_offset, producer_id)
        self.end_offset = header.next_offset

    def end(self) -> None:
        """Check that no entry is left without a batch; new batches may be appended meanwhile."""
        offsets, positions = self._offset_index.load()
        if self._at < len(positions) and (
            positions[self._at] < self._size or not self._is_active
        ):
            self._lie_of_offset(offsets[self._at], positions[self._at])
        if self._time_at < len(self._time_index.load()[0]) and not self._is_active:
            cause = "no batch lies at its offset"
            self._lie(self._time_index.path, self._time_at * TIME_ENTRY.size, cause)
        for offset, producer_id in self._aborted.items():
            if offset < self.end_offset or not self._is_active:
                self._lie_of_abort(offset, producer_id)

    def _meet_offsets(self, position: int, last_offset: int) -> None:
        """Check the offset entries up to a position, where a batch begins.

        Kafka gave all batches of one request one entry, with their last offset.
        """
        offsets, positions = self._offset_index.load()
        while self._at < len(positions) and positions[self._at] <= position:
            offset, there = offsets[self._at], positions[self._at]
            if there != position or self._base + offset < last_offset:
                self._lie_of_offset(offset, there)
            self._at += 1
            self.count += 1

    def _lie_of_offset(self, relative: int, position: int) -> None:
        cause = f"no batch up to offset {self._base + relative} begins at position {position}"
        self._lie(self._offset_index.path, self._at * OFFSET_ENTRY.size, cause)

    def _lie(self, path: Path, position: int, cause: str) -> None:
        self._fail(CorruptFile(path, position, cause))

    def _lie_of_abort(self, offset: int, producer_id: int) -> None:
        cause = f"no abort marker of producer {producer_id} is at offset {offset}"
        self._lie(self._aborted_path, 0, cause)

    def _fail(self, damage: CorruptFile) -> None:
        if self.lie is None:
            self.lie = Violation(self.end_offset, None, str(damage))


def _is_abort(record: Record | None) -> bool:
    try:
        return record is not None and decode_control(record).type == ControlType.ABORT
    except ProtocolError:
        return False
