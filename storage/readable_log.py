"""A log as readers see it: which records it has, and where they are.

storage.log.Log changes it, on the event loop. `segments` is a tuple that is replaced and never
mutated, so that a thread can take it and read without a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.protocol.batches import BatchHeader
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.errors import (
    BucketFailure,
    DiskFailure,
    NotCached,
    OffsetOutOfRange,
    StorageError,
)
from odradek.storage.producers import ProducerStates
from odradek.storage.reading import TimestampedOffset, first_at_or_after, replay, segment_index
from odradek.storage.segment import Segment, Slice
from odradek.storage.uncommitted import Uncommitted

_FETCHED_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The partition that a directory belongs to."""

    topic: str
    partition: int
    topic_id: bytes


@dataclass(frozen=True, slots=True)
class LogParts:
    """The contents of a log's directory, once they are loaded and repaired."""

    segments: Sequence[Segment]
    log_start_offset: int
    recovery_point: int  # every batch before it is on the disk
    epochs: LeaderEpochs
    producers: ProducerStates


class ReadableLog:
    """The segments and offsets of one partition."""

    def __init__(
        self, directory: Path, identity: LogIdentity, config: TopicConfig, parts: LogParts
    ) -> None:
        self.directory = directory
        self.topic, self.partition = identity.topic, identity.partition
        self.topic_id = identity.topic_id
        self.name = f"{self.topic}-{self.partition}"
        self.config = config
        self.segments: tuple[Segment, ...] = tuple(parts.segments)
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = self.segments[-1].next_offset
        self.recovery_point = parts.recovery_point
        self.producers, self._epochs = parts.producers, parts.epochs
        self.leader_epoch = max(parts.epochs.latest, 0)  # written into appended batches
        self._size_before_active = sum(s.size_bytes for s in self.segments[:-1])
        # The end that is not committed yet; None for a local log, which readers read to its end.
        self.uncommitted: Uncommitted | None = None
        self.is_deleted = False
        # Whether another process has the log now.
        self.is_handed_over = False
        # The error that stopped the log: the last appended batches may not be on the disk.
        self.failure: StorageError | None = None

    def __repr__(self) -> str:
        return f"Log({self.name} [{self.log_start_offset}, {self.log_end_offset}))"

    @property
    def is_closed(self) -> bool:
        """Whether the partition no longer uses this log: it has gone, or the disk failed."""
        return self.is_deleted or self.is_handed_over or self.failure is not None

    @property
    def sync_failure(self) -> DiskFailure | None:
        """The error that kept appended data off the disk, or None."""
        failures = (segment.sync_failure for segment in self.segments)
        return next((one for one in failures if one is not None), None)

    @property
    def active(self) -> Segment:
        """The segment that takes appends."""
        return self.segments[-1]

    @property
    def is_shared(self) -> bool:
        """Whether the bucket has the log; else its directory has it."""
        return self.uncommitted is not None

    @property
    def must_flush(self) -> bool:
        """Whether flush.messages records, or more, are not durable yet."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def high_watermark(self) -> int:
        """The end of the records that consumers may read: the log's end, if it is local."""
        return self.log_end_offset if self.uncommitted is None else self.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """The end for read_committed consumers: the first open transaction, or all's end."""
        offset = self.producers.first_open_offset
        if self.uncommitted is not None:
            unstable = self.uncommitted.unstable_offset
            offset = min(one for one in (unstable, offset, self.recovery_point) if one is not None)
        return self.log_end_offset if offset is None else max(offset, self.log_start_offset)

    @property
    def size_bytes(self) -> int:
        """The size of all segments' batches."""
        return self._size_before_active + self.active.size_bytes

    @property
    def epochs(self) -> tuple[tuple[int, int], ...]:
        """All leader epochs with their first offsets, oldest first."""
        return self._epochs.entries

    def follow(self, directory: Path) -> None:
        """Note that the directory was renamed."""
        self.directory = directory
        for segment in self.segments:
            segment.follow(directory)

    def raise_epoch(self, epoch: int) -> None:
        """Begin a later leader epoch with the next batch; waits for the disk."""
        if epoch > self.leader_epoch:
            self._epochs.assign(epoch, self.log_end_offset)
            self.leader_epoch = epoch

    def note_epoch(self, epoch: int, start_offset: int) -> None:
        """Note the leader epoch of a batch that was copied, and the batch's first offset."""
        self._epochs.assign(epoch, start_offset)

    def copy_epochs(self, directory: Path) -> LeaderEpochs:
        """Write the leader epochs into another directory, durably; may run in a thread."""
        return self._epochs.copy_to(directory)

    def read(
        self,
        offset: int,
        size_max: int,
        *,
        at_least_one: bool,
        is_committed: bool = False,
        may_wait: bool = True,
    ) -> Slice | None:
        """Find up to size_max bytes of batches, beginning with the batch that holds an offset.

        With `is_committed`, they end at the last stable offset. Returns None when there is
        nothing to read yet, or when the first batch alone is larger than size_max and
        `at_least_one` is False. Raises OffsetOutOfRange; CorruptFile for damage in the way;
        NotCached when the read would have to wait for the disk and `may_wait` is False.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.name}: offset {offset} is outside "
                f"[{self.log_start_offset}, {self.log_end_offset}]"
            )
        end = self.last_stable_offset if is_committed else self.high_watermark
        segments = self.segments
        rest = None
        if offset < end == self.log_end_offset:
            rest = segments[-1].rest_from(offset)
        if not may_wait and (rest is not None or offset == self.log_end_offset):
            segments[-1].note_end()  # on the event loop, which appends
        if offset >= end:
            return None
        if rest is not None and rest.size <= size_max:
            return rest
        for at in range(segment_index(segments, offset), len(segments)):
            segment = segments[at]
            try:
                found = segment.locate(offset, may_wait=may_wait)
            except NotCached as error:
                raise NotCached(partial(_warm, error.warm, segments[at:], offset)) from None
            if found is None:  # compaction left nothing at or after the offset here
                continue
            position, first_size = found
            size = segment.size_bytes - position
            if end < self.log_end_offset:
                size = segment.position_of(end, may_wait=may_wait) - position
                if size <= 0:
                    return None
            if size_max < size:
                size = size_max
            if size < first_size:
                if not at_least_one:
                    return None
                size = first_size
            return Slice(segment.log.hold(), position, size, segment.base_offset)
        return None

    def offset_for_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """Find the first record whose timestamp is at or after the given one.

        Raises CorruptFile for damage in the way.
        """
        size_max = self.config.max_decompressed_message_bytes
        return first_at_or_after(self.segments, timestamp, self.log_start_offset, size_max)

    def offset_of_max_timestamp(self) -> TimestampedOffset | None:
        """Find the first record with the largest timestamp (ListOffsets -3, KIP-734).

        As in Kafka, it may be a record before the log's start, as long as its segment exists.
        When no record has a timestamp, it is the first record; but None when that record has
        the format without timestamps (magic 0).
        """
        largest = max(segment.max_timestamp for segment in self.segments)
        size_max = self.config.max_decompressed_message_bytes
        return first_at_or_after(self.segments, largest, 0, size_max)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the largest epoch not above the given one."""
        return self._epochs.end_offset(epoch, self.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch in which the record at an offset was written."""
        return self._epochs.epoch_of(offset)

    def fetch(self) -> None:
        """Copy from the bucket all that `batches` reads; call it in a thread.

        Raises StoreFailure, and CorruptFile for damage.
        """
        for segment in self.segments:
            if segment.log.is_fixed:
                segment.offset_index.entries.load()
                for position in range(0, segment.size_bytes, _FETCHED_BYTES):
                    segment.log.read(position, _FETCHED_BYTES)

    def batches(self, start_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Read every intact batch from an offset on, for replay; waits for the disk.

        Damaged parts are logged and left out. Raises BucketFailure on the event loop, which does
        not wait for the bucket, if something was dropped after `fetch`.
        """
        try:
            yield from replay(self.segments, start_offset)
        except NotCached as error:
            raise BucketFailure(
                "it was dropped from the cache: raise odradek.cache.bytes"
            ) from error


def _warm(warm: Callable[[], object], segments: Sequence[Segment], offset: int) -> None:
    """Read all that it takes to find an offset; of the bucket, that may be many segments.

    Raises StorageError.
    """
    warm()
    for segment in segments:
        if not segment.log.is_fixed or segment.locate(offset) is not None:
            return
