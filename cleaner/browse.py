"""Reads a log's records from its end backwards, as far as somebody wants to see them.

A file can be read forwards only, so it is read in chunks between entries of the offset index:

    |  chunk 3  |  chunk 2  |  chunk 1  |  end of the segment
                ^ index entry           each forwards, then turned round

Within a batch, too, records can be read forwards only; of those that are wanted no more are kept
on the way than are asked for. The first record of a key that is met is its latest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
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


Newest = Callable[[Iterable[Record], int], list[Record]]
"""Of records that come oldest first, returns those that are wanted, the newest so many first."""


class Matching:
    """Wants the records that a function says are wanted."""

    def __init__(self, is_wanted: Callable[[Record], bool]) -> None:
        self._is_wanted = is_wanted

    def __call__(self, records: Iterable[Record], count_max: int) -> list[Record]:
        """Return the newest."""
        newest = deque(filter(self._is_wanted, records), count_max)
        return list(reversed(newest))


class LatestOnly:
    """Wants the newest record of each key, where the newest are asked for first.

    None without a key, and none of those whose key it does not want.
    """

    def __init__(self, wants_key: Callable[[bytes], bool]) -> None:
        self._wants_key = wants_key
        self._seen: set[bytes] = set()

    def __call__(self, records: Iterable[Record], count_max: int) -> list[Record]:
        """Return the newest of keys that have not been met yet."""
        newest: dict[bytes, Record] = {}
        for record in records:
            key = record.key
            if key is None or key in self._seen or not self._wants_key(key):
                continue
            newest.pop(key, None)
            newest[key] = record
            if len(newest) > count_max:
                # So many keys have a newer record, and it is not among the newest any more.
                del newest[next(iter(newest))]
        self._seen.update(newest)
        return list(reversed(newest.values()))


def browse(
    snapshot: Snapshot,
    *,
    before_offset: int | None,
    newest: Newest,
    records_max: int,
    bytes_max: int,
    decoded_max: int,
    before_io: Callable[[int], None],
) -> Found:
    """Find the newest committed records that are wanted, below an offset; in a thread.

    Stops at `records_max` of them, after the chunk with which `bytes_max` have been read, and
    after the batch with which `decoded_max` records have been decoded: a small batch may hold
    very many, and so no more of them is in memory at once than what was found. Raises
    CorruptFile for damage on the way, DiskFailure, and what `before_io` raises.
    """
    end_offset = snapshot.stable_offset
    if before_offset is not None:
        end_offset = min(end_offset, before_offset)
    aborted = AbortedRanges(snapshot.aborted)
    found: list[Record] = []
    read_bytes = decoded = 0
    for chunk, first_offset, size_bytes in _chunks(snapshot, end_offset, before_io):
        for batch in reversed(chunk):
            records = _records(snapshot, batch, aborted, end_offset)
            if records is None:
                continue
            found += newest(records, records_max - len(found))
            if len(found) == records_max:
                return Found(found, found[-1].offset, read_bytes + size_bytes)
            decoded += batch.header.count
            base_offset = batch.header.base_offset
            if decoded >= decoded_max and snapshot.start_offset < base_offset:
                return Found(found, base_offset, read_bytes + size_bytes)
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
    snapshot: Snapshot, batch: Stored, aborted: AbortedRanges, end_offset: int
) -> Iterator[Record] | None:
    """Decode a batch's records that may be shown; None when it has none."""
    header = batch.header
    if header.is_control or aborted.hold(header) or header.base_offset >= end_offset:
        return None
    if header.last_offset < snapshot.start_offset:
        return None
    return (
        record
        for record in batch.each_record(snapshot.decompressed_bytes_max)
        if snapshot.start_offset <= record.offset < end_offset
    )
