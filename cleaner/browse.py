"""Reads a log's records from its end backwards, as far as somebody wants to see them.

A file can be read forwards only, so it is read in chunks between entries of the offset index:

    |  chunk 3  |  chunk 2  |  chunk 1  |  end of the segment
                ^ index entry           each forwards, then turned round

Read this way the first record of a key is its latest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cleaner.snapshot import HeldSegment, Snapshot
from cleaner.stored import AbortedRanges, Stored, read_stored
from protocol.batches import Record
from storage.errors import StorageError
from storage.scan import Batches

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of a log, the newest records first."""

    records: list[Record]
    # Records below this offset have not been looked at; None when all have.
    before_offset: int | None
    read_bytes: int


class LatestOnly:
    """Wants the first record of each key that comes by, and none without a key."""

    def __init__(self, wants_key: Callable[[bytes], bool]) -> None:
        self._wants_key = wants_key
        self._seen: set[bytes] = set()

    def __call__(self, record: Record) -> bool:
        """Tell whether a record is wanted."""
        key = record.key
        if key is None or key in self._seen or not self._wants_key(key):
            return False
        self._seen.add(key)
        return True


def browse(
    snapshot: Snapshot,
    *,
    before_offset: int | None,
    wanted: Callable[[Record], bool],
    records_max: int,
    bytes_max: int,
    before_io: Callable[[int], None],
) -> Found:
    """Find the newest committed records that are wanted, below an offset; in a thread.

    Stops at `records_max` of them, and after the chunk with which `bytes_max` have been read.
    Raises CorruptFile for damage on the way, DiskFailure, and what `before_io` raises.
    """
    end_offset = snapshot.stable_offset
    if before_offset is not None:
        end_offset = min(end_offset, before_offset)
    aborted = AbortedRanges(snapshot.aborted)
    found: list[Record] = []
    read_bytes = 0
    for chunk, first_offset, size_bytes in _chunks(snapshot, end_offset, before_io):
        for record in reversed(_records(snapshot, chunk, aborted, end_offset)):
            if not wanted(record):
                continue
            found.append(record)
            if len(found) == records_max:
                return Found(found, record.offset, read_bytes + size_bytes)
        read_bytes += size_bytes
        # A chunk may lie above the end offset as a whole: going on from there would lead nowhere.
        if read_bytes >= bytes_max and snapshot.start_offset < first_offset < end_offset:
            return Found(found, first_offset, read_bytes)
    return Found(found, None, read_bytes)


def _chunks(
    snapshot: Snapshot, end_offset: int, before_io: Callable[[int], None]
) -> Iterator[tuple[list[Stored], int, int]]:
    """Read chunks backwards: their batches, the first one's base offset, their size."""
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
    """Return a position behind which nothing lies below an offset."""
    end = held.batches.size_bytes
    if end_offset >= held.segment.next_offset:
        return end
    try:
        position = held.segment.offset_index.position_past(end_offset)
    except StorageError:  # gone with its segment, of which only the batches are held
        return end
    return end if position is None else min(position, end)


def _start_of(held: HeldSegment, end: int) -> int:
    """Return where the chunk that ends at a position begins."""
    if end <= _CHUNK_BYTES:
        return 0
    try:
        return held.segment.offset_index.position_before(end - _CHUNK_BYTES + 1)
    except StorageError:
        return 0


def _records(
    snapshot: Snapshot, chunk: list[Stored], aborted: AbortedRanges, end_offset: int
) -> list[Record]:
    found: list[Record] = []
    for batch in chunk:
        header = batch.header
        if header.is_control or aborted.hold(header) or header.base_offset >= end_offset:
            continue
        if header.last_offset < snapshot.start_offset:
            continue
        found += (
            record
            for record in batch.records(snapshot.decompressed_bytes_max)
            if snapshot.start_offset <= record.offset < end_offset
        )
    return found
