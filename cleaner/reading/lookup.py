"""Finds the latest record of a key in a log: the newest segments first.

Within a segment the batches are read from its start, and the last one with the key wins. Records
are walked only in batches whose bytes contain the key: searching bytes is fast, walking records
is slow, and compiled kernels do it when there are many. One batch at a time is in memory,
decompressed.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.cleaner.proof.snapshot import HeldSegment, Snapshot
from odradek.cleaner.proof.stored import AbortedRanges, read_stored
from odradek.cleaner.reading.excerpts import Bounds, Excerpt
from odradek.cleaner.reading.unpacked import Unpacked
from odradek.dataclass import dataclass
from odradek.protocol.record_places import Walker


@dataclass(frozen=True, slots=True)
class Latest:
    """The latest record of a key; a null value means that the key was deleted."""

    partition: int
    record: Excerpt


def find_latest(
    snapshot: Snapshot,
    partition: int,
    key: bytes,
    *,
    is_committed: bool,
    bounds: Bounds,
    before_io: Callable[[int], None],
    load_kernels: Callable[[], None],
) -> Latest | None:
    """Return the latest record of a key, None when there is none; runs in a thread.

    With `is_committed`, only records that read_committed consumers see. Raises CorruptFile for
    damage in the way, DiskFailure, and the errors of `before_io`.
    """
    aborted = AbortedRanges(snapshot.aborted if is_committed else ())
    end_offset = snapshot.stable_offset if is_committed else snapshot.end_offset
    walker = Walker(load_kernels)
    for held in reversed(snapshot.segments):
        if held.base_offset >= end_offset or not _may_hold(held, key):
            continue
        found: Excerpt | None = None
        for batch in read_stored(held.batches, held.offsets, before_io):
            header = batch.header
            if header.last_offset < snapshot.start_offset:
                continue
            if header.base_offset >= end_offset:
                break
            if header.is_control or aborted.hold(header):
                continue
            unpacked = Unpacked(batch, snapshot.decompressed_bytes_max, walker)
            place = unpacked.last_with_key(key)
            if place is not None and place.offset >= snapshot.start_offset:
                found = unpacked.excerpt(place, bounds)
        if found is not None:
            return Latest(partition, found)
    return None


def _may_hold(held: HeldSegment, key: bytes) -> bool:
    """Return whether a key may be in a segment, without reading its batches.

    The one place for knowledge about a segment's keys; there is none so far.
    """
    return True
