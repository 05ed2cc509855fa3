"""A log at one moment, which can be read as a consumer reads it even after the log changed.

The segments' files are held open: they can be read even after a cleaning or retention has
replaced them and their names are gone. That costs a descriptor for each segment, and the disk
space of removed files, until the snapshot is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek.cleaner.proof.guarantees import Seen
from odradek.cleaner.proof.stored import AbortedRanges, Stored, read_stored
from odradek.dataclass import dataclass
from odradek.storage.log import Log
from odradek.storage.reading import aborted_between
from odradek.storage.scan import Batches
from odradek.storage.segment import LOG, Segment
from odradek.storage.transactions import AbortedTransaction


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """A segment's batches, up to their end at that moment."""

    segment: Segment  # for its names and its indexes; not for its batches
    base_offset: int
    end_offset: int  # the base offset of the next segment, or the log's end offset
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
        """Read and check all batches. Raises CorruptFile, and the errors of `before_io`."""
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


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of a log that the loop notes; a snapshot also holds the file of each segment."""

    name: str
    start_offset: int
    stable_offset: int
    end_offset: int
    segments: tuple[Segment, ...]
    active_bytes: int
    decompressed_bytes_max: int


def note_moment(log: Log) -> Moment:
    """Note the present state of a log; on the loop. Raises CorruptFile and DiskFailure."""
    active = log.segments[-1]
    # The loop adds to this index; a thread that read the file first could lose new entries.
    active.transactions.load()
    return Moment(
        log.name,
        log.log_start_offset,
        log.last_stable_offset,
        log.log_end_offset,
        log.segments,
        active.size_bytes,
        log.config.max_decompressed_message_bytes,
    )


def hold(moment: Moment) -> Snapshot:
    """Hold the files of a moment that has just passed; runs in a thread.

    Raises CorruptFile and DiskFailure.
    """
    segments = moment.segments
    ends = [*(one.base_offset for one in segments[1:]), moment.end_offset]
    sizes = [*(one.size_bytes for one in segments[:-1]), moment.active_bytes]
    return Snapshot(
        moment.name,
        moment.start_offset,
        moment.stable_offset,
        moment.end_offset,
        tuple(
            HeldSegment(
                one,
                one.base_offset,
                end_offset,
                Batches(one.log.hold(), one.path(LOG), size_bytes),
            )
            for one, end_offset, size_bytes in zip(segments, ends, sizes, strict=True)
        ),
        tuple(aborted_between(segments, segments[0].base_offset, moment.end_offset)),
        moment.decompressed_bytes_max,
    )


def take_snapshot(log: Log) -> Snapshot:
    """Take a snapshot of a log; on the loop. Raises CorruptFile and DiskFailure."""
    return hold(note_moment(log))
