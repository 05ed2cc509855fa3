"""Finds the latest record of a key in a log: the newest segments first.

Within a segment the batches are read from its start, and the last that has the key wins. Only
batches in whose bytes the key occurs are decoded: looking for it is fast, decoding is not. One
batch is in memory at a time, decompressed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cleaner.snapshot import HeldSegment, Snapshot
from cleaner.stored import AbortedRanges, Stored, read_stored
from protocol.batches import MAGIC, Record, record_section
from protocol.errors import ProtocolError


@dataclass(frozen=True, slots=True)
class Latest:
    """The latest record of a key; without a value it says that the key was deleted."""

    partition: int
    record: Record


def find_latest(
    snapshot: Snapshot,
    partition: int,
    key: bytes,
    *,
    is_committed: bool,
    before_io: Callable[[int], None],
) -> Latest | None:
    """Return the latest record of a key, None when there is none; in a thread.

    With `is_committed` only what readers of committed records see. Raises CorruptFile for
    damage on the way, DiskFailure, and what `before_io` raises.
    """
    aborted = AbortedRanges(snapshot.aborted if is_committed else ())
    end_offset = snapshot.stable_offset if is_committed else snapshot.end_offset
    for held in reversed(snapshot.segments):
        if held.base_offset >= end_offset or not _may_hold(held, key):
            continue
        found: Record | None = None
        for batch in read_stored(held.batches, held.offsets, before_io):
            header = batch.header
            if header.last_offset < snapshot.start_offset:
                continue
            if header.base_offset >= end_offset:
                break
            if header.is_control or aborted.hold(header):
                continue
            if not _has_bytes(batch, key, snapshot.decompressed_bytes_max):
                continue
            for record in batch.each_record(snapshot.decompressed_bytes_max):
                if record.key == key and record.offset >= snapshot.start_offset:
                    found = record
        if found is not None:
            return Latest(partition, found)
    return None


def _may_hold(held: HeldSegment, key: bytes) -> bool:
    """Tell whether a key may be in a segment, without reading its batches.

    The one place to ask what is known of a segment's keys; nothing is, so far.
    """
    return True


def _has_bytes(batch: Stored, key: bytes, decompressed_bytes_max: int) -> bool:
    """Tell whether a batch's records may have a key, without decoding them."""
    header = batch.header
    if header.magic != MAGIC:
        return True
    try:
        section = record_section(batch.data, 0, header, decompressed_bytes_max)
    except ProtocolError as error:
        raise batch.damage(str(error)) from error
    return key in bytes(section)
