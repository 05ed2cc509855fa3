"""Reads a log's records from its end backwards, as far as a reader wants to see them.

A file can be read forwards only, so it is read in chunks between entries of the offset index:

    |  chunk 3  |  chunk 2  |  chunk 1  |  end of the segment
                ^ index entry           each forwards, then reversed

A batch is unpacked as a whole, and its records are read in blocks (`unpacked`), the last
block first. Only excerpts of wanted records are kept, no more than the caller asks for. The
first record found of a key is its latest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from itertools import islice
from typing import Protocol

from odradek.cleaner.proof.snapshot import HeldSegment, Snapshot
from odradek.cleaner.proof.stored import AbortedRanges, Stored, read_stored
from odradek.cleaner.reading.excerpts import Bounds, Excerpt, RecordPlace
from odradek.cleaner.reading.unpacked import Unpacked
from odradek.cleaner.rules.key_tokens import token_of
from odradek.dataclass import dataclass
from odradek.protocol.record_places import Walker
from odradek.storage.errors import StorageError
from odradek.storage.scan import Batches

_CHUNK_BYTES = 1 << 20
# Whether a record is wanted.
Passes = Callable[[RecordPlace], bool]

# A block skipped because it lacks the searched bytes counts as this part of its records.
_PASSED_OVER_PART = 8


@dataclass(frozen=True, slots=True)
class Found:
    """The records found in a log, the newest first."""

    records: list[Excerpt]
    # Records below this offset have not been searched; None when all have.
    before_offset: int | None
    read_bytes: int
    unpacked_bytes: int
    decoded: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one search: it ends after the step that reaches one of them.

    Steps are excerpts, blocks, batches and chunks.
    """

    records_max: int  # excerpts
    found_bytes_max: int  # of all excerpts
    read_bytes_max: int  # of chunks, as stored
    unpacked_bytes_max: int  # of batches
    decoded_max: int  # records in the blocks


class Newest(Protocol):
    """Selects the wanted records, the newest first, from records that come oldest first."""

    search: bytes
    """The bytes that each wanted record contains."""

    def __call__(self, records: Iterable[RecordPlace], count_max: int) -> list[RecordPlace]:
        """Return at most `count_max` wanted records."""


class OfKey:
    """Selects the records of one key."""

    def __init__(self, key: bytes, passes: Passes | None = None) -> None:
        # A block without the key's bytes has no record of it.
        self.search, self._passes = key, passes

    def __call__(self, records: Iterable[RecordPlace], count_max: int) -> list[RecordPlace]:
        """Return the newest."""
        key = self.search
        found = (one for one in records if one.key_length == len(key) and one.key_holds(key))
        return _newest_of(found, count_max, self._passes)


class Matching:
    """Selects the records whose key or value contains some bytes; all of them with b""."""

    def __init__(self, search: bytes = b"", passes: Passes | None = None) -> None:
        self.search, self._passes = search, passes

    def __call__(self, records: Iterable[RecordPlace], count_max: int) -> list[RecordPlace]:
        """Return the newest."""
        search = self.search
        if search:
            records = (
                one for one in records if one.key_holds(search) or one.value_holds(search)
            )
        return _newest_of(records, count_max, self._passes)


def _newest_of(
    records: Iterable[RecordPlace], count_max: int, passes: Passes | None
) -> list[RecordPlace]:
    if passes is None:
        return list(reversed(deque(records, count_max)))
    # It may cost much: older records than those wanted are not asked about.
    return list(islice(filter(passes, reversed(list(records))), count_max))


class LatestOnly:
    """Selects the newest record of each key that contains some bytes.

    The newest records have to be passed first. Records without a key are left out.
    """

    def __init__(self, search: bytes = b"") -> None:
        self.search = search
        self._seen: set[bytes] = set()

    def __call__(self, records: Iterable[RecordPlace], count_max: int) -> list[RecordPlace]:
        """Return the newest records of keys that have not been seen yet."""
        newest: dict[bytes, RecordPlace] = {}
        for record in records:
            if not record.key_holds(self.search):
                continue
            assert record.key is not None
            key = token_of(record.key)
            if key in self._seen:
                continue
            newest.pop(key, None)
            newest[key] = record
            if len(newest) > count_max:
                # `count_max` other keys have newer records, so this record drops out.
                del newest[next(iter(newest))]
        self._seen.update(newest)
        return list(reversed(newest.values()))


def browse(
    snapshot: Snapshot,
    *,
    before_offset: int | None,
    newest: Newest,
    limits: Limits,
    bounds: Bounds,
    before_io: Callable[[int], None],
    load_kernels: Callable[[], None],
) -> Found:
    """Find the newest wanted records that are committed, below an offset; runs in a thread.

    Stops at a limit, and returns the offset where the next search continues: a small batch may
    hold very many records, or unpack to very many bytes. Raises CorruptFile for damage in the
    way, DiskFailure, and the errors of `before_io`, which is also called for each block.
    """
    end_offset = snapshot.stable_offset
    if before_offset is not None:
        end_offset = min(end_offset, before_offset)
    walker = Walker(load_kernels)
    search = _Search(snapshot, end_offset, newest, limits, bounds, before_io, walker)
    read_bytes = 0
    for chunk, first_offset, size_bytes in _chunks(snapshot, end_offset, before_io):
        for batch in reversed(chunk):
            stop_offset = search.add(batch)
            if stop_offset is not None:
                return search.end(stop_offset, read_bytes + size_bytes)
        read_bytes += size_bytes
        # A whole chunk may lie above the end offset: a search from there would find nothing new.
        if read_bytes >= limits.read_bytes_max and (
            snapshot.start_offset < first_offset < end_offset
        ):
            return search.end(first_offset, read_bytes)
    return search.end(None, read_bytes)


@dataclass(slots=True)
class _Search:
    """The state of one search; its thread owns it."""

    snapshot: Snapshot
    end_offset: int
    newest: Newest
    limits: Limits
    bounds: Bounds
    before_io: Callable[[int], None]
    walker: Walker
    aborted: AbortedRanges = field(init=False)
    found: list[Excerpt] = field(default_factory=list)
    found_bytes: int = 0
    unpacked_bytes: int = 0
    decoded: int = 0

    def __post_init__(self) -> None:
        self.aborted = AbortedRanges(self.snapshot.aborted)

    def add(self, batch: Stored) -> int | None:
        """Search a batch; return the offset below which the next search continues, or None."""
        header, start_offset = batch.header, self.snapshot.start_offset
        if header.is_control or self.aborted.hold(header):
            return None
        if header.base_offset >= self.end_offset or header.last_offset < start_offset:
            return None
        unpacked = Unpacked(batch, self.snapshot.decompressed_bytes_max, self.walker)
        self.unpacked_bytes += unpacked.size_bytes
        for block in reversed(range(unpacked.block_count)):
            self.before_io(0)
            first_offset = unpacked.first_offset(block)
            if first_offset >= self.end_offset:
                continue
            if self._add_block(unpacked, block):
                return self.found[-1].offset
            if self.decoded >= self.limits.decoded_max and start_offset < first_offset:
                return first_offset
        is_enough = self.unpacked_bytes >= self.limits.unpacked_bytes_max
        return header.base_offset if is_enough and start_offset < header.base_offset else None

    def end(self, before_offset: int | None, read_bytes: int) -> Found:
        """Return the result."""
        return Found(self.found, before_offset, read_bytes, self.unpacked_bytes, self.decoded)

    def _add_block(self, unpacked: Unpacked, block: int) -> bool:
        """Search a block; return whether the search has all records that it may return."""
        limits = self.limits
        if not unpacked.holds(self.newest.search, block):
            self.decoded += max(unpacked.count(block) // _PASSED_OVER_PART, 1)
            return False
        self.decoded += unpacked.count(block)
        start_offset, end_offset = self.snapshot.start_offset, self.end_offset
        shown = (
            place for place in unpacked.records(block) if start_offset <= place.offset < end_offset
        )
        for place in self.newest(shown, limits.records_max - len(self.found)):
            self.found.append(unpacked.excerpt(place, self.bounds))
            self.found_bytes += self.found[-1].size_bytes
            if self.found_bytes >= limits.found_bytes_max:
                return True
        return len(self.found) >= limits.records_max


def _chunks(
    snapshot: Snapshot, end_offset: int, before_io: Callable[[int], None]
) -> Iterator[tuple[list[Stored], int, int]]:
    """Read chunks backwards: yield their batches, the first base offset, and the size."""
    for held in reversed(snapshot.segments):
        if held.base_offset >= end_offset:
            continue
        end = _end_of(held, end_offset)
        while end > 0:
            start = _start_of(held, end)
            batches = Batches(held.batches.file, held.batches.path, end)
            chunk = list(read_stored(batches, held.offsets, before_io, start))
            first_offset = chunk[0].header.base_offset if chunk else held.base_offset
            yield chunk, first_offset, end - start
            if first_offset <= snapshot.start_offset:
                return
            end = start


def _end_of(held: HeldSegment, end_offset: int) -> int:
    """Return a position after which all batches are at or above an offset."""
    end = held.batches.size_bytes
    if end_offset >= held.segment.next_offset:
        return end
    try:
        position = held.segment.offset_index.position_past(end_offset)
    except StorageError:  # the index was removed with its segment; only the batches are held
        return end
    return end if position is None else min(position, end)


def _start_of(held: HeldSegment, end: int) -> int:
    """Return the start of the chunk that ends at a position."""
    if end <= _CHUNK_BYTES:
        return 0
    try:
        return held.segment.offset_index.position_before(end - _CHUNK_BYTES + 1)
    except StorageError:
        return 0
