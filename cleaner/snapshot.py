"""A log as it is at one moment, to be read as a consumer reads it, whatever becomes of it.

The segments' files are held open: they can be read even when a cleaning or retention has
replaced them and their names are gone. That costs a descriptor for each segment, and the disk
space of what was removed, until the snapshot is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cleaner.guarantees import Seen
from cleaner.stored import AbortedRanges, Stored, read_stored
from storage.log import Log
from storage.reading import aborted_between
from storage.scan import Batches
from storage.segment import LOG, Segment
from storage.transactions import AbortedTransaction


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """A segment's batches, up to where they ended."""

    segment: Segment  # for its names and its indexes; not for its batches
    base_offset: int
    end_offset: int  # that of the segment behind it, or of the log
    batches: Batches

    @property
    def offsets(self) -> range:
        """The offsets that its records may have."""
        return range(self.base_offset, self.end_offset)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A log at one moment."""

    name: str
    start_offset: int
    stable_offset: int
    end_offset: int
    segments: tuple[HeldSegment, ...]
    aborted: tuple[AbortedTransaction, ...]
    decompressed_bytes_max: int

    @property
    def size_bytes(self) -> int:
        """The size of all batches."""
        return sum(one.batches.size_bytes for one in self.segments)

    def stored(self, before_io: Callable[[int], None]) -> Iterator[Stored]:
        """Read all batches, each checked. Raises CorruptFile, and what `before_io` raises."""
        for one in self.segments:
            yield from read_stored(one.batches, one.offsets, before_io)

    def seen(self, before_io: Callable[[int], None]) -> Iterator[Seen]:
        """Read all records that consumers are shown, oldest first; raises as stored() does."""
        aborted = AbortedRanges(self.aborted)
        for batch in self.stored(before_io):
            header = batch.header
            if header.is_control:
                continue
            is_committed = not aborted.hold(header)
            horizon_ms = header.base_timestamp if header.has_delete_horizon else None
            for record in batch.each_record(self.decompressed_bytes_max):
                yield Seen(record, is_committed, horizon_ms)


def take_snapshot(log: Log) -> Snapshot:
    """Take a log as it is now; on the loop. Raises CorruptFile and DiskFailure."""
    segments = log.segments
    ends = [*(one.base_offset for one in segments[1:]), log.log_end_offset]
    return Snapshot(
        log.name,
        log.log_start_offset,
        log.last_stable_offset,
        log.log_end_offset,
        tuple(
            HeldSegment(
                one,
                one.base_offset,
                end_offset,
                Batches(one.log.hold(), one.path(LOG), one.size_bytes),
            )
            for one, end_offset in zip(segments, ends, strict=True)
        ),
        tuple(aborted_between(segments, segments[0].base_offset, log.log_end_offset)),
        log.config.max_decompressed_message_bytes,
    )
