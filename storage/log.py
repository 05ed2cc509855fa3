"""A log: the segments of one partition, appended to, rolled, flushed, trimmed and cleaned.

The event loop owns it: only the loop appends, rolls, trims and swaps. storage/readable_log.py has
the part that reads.

1. `segments` is replaced and never mutated; only its last segment, the active one, grows.
2. Offsets are assigned once and in order: `log_end_offset` never goes back.
3. `log_start_offset` never goes back, and never passes the end.
4. An append that is refused, or fails, leaves no part of its batch in the log.
5. All batches before `recovery_point` are on the disk, or in the WAL if the log is shared.
6. At most one exchange of segments is in progress. It is settled before another begins, before
   segments of it are deleted, and before the log is moved or closed.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek.config.topic import TopicConfig
from odradek.protocol.batches import patch_base_offset_and_epoch
from odradek.storage.allowance import Allowance
from odradek.storage.appended import Appended
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.errors import InvalidRecord, OffsetOutOfRange, StaleSegments
from odradek.storage.exchange import Exchange, carry_out
from odradek.storage.files import Buffer, FileSystem
from odradek.storage.flushing import Unflushed
from odradek.storage.readable_log import LogIdentity, LogParts, ReadableLog
from odradek.storage.reading import segment_index
from odradek.storage.rolling import begin_segment, draw_roll_jitter_ms, must_roll
from odradek.storage.segment import DELETED, SUFFIXES, Segment
from odradek.storage.transactions import Marker, read_marker
from odradek.storage.validation import CheckedBatch, check_batch

logger = logging.getLogger(__name__)


class Log(ReadableLog):
    """One partition's log. storage.recovery.load_log creates it; its caller owns it."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        identity: LogIdentity,
        config: TopicConfig,
        parts: LogParts,
        random_source: random.Random,
    ) -> None:
        super().__init__(directory, identity, config, parts)
        self._fs, self._random = fs, random_source
        self._directory_dirty = True
        # Small files that the next flush makes durable, besides the producers' snapshots.
        self.unsynced: list[Path] = []
        self._exchange: Exchange | None = None
        self._is_half_rolled = False
        # The step that the next flush must take, once the log has moved (storage.moving).
        self._handover: Callable[[], None] | None = None
        # Called after an append with its bytes and its number of records, to wake readers.
        self.on_append: Callable[[Log, int, int], None] | None = None
        # Called when the end of a transaction has moved the last stable offset forward.
        self.on_stable: Callable[[Log], None] | None = None
        # Called after a roll, to flush the sealed segment.
        self.on_roll: Callable[[Log], None] | None = None
        # Called with files to remove and the time to do so, file.delete.delay.ms from now.
        self.on_files_deleted: Callable[[Sequence[Path], int], None] | None = None

    # --- writing --------------------------------------------------------------------------

    def append(
        self,
        records: Buffer,
        *,
        now_ms: int,
        from_client: bool = True,
        allowance: Allowance | None = None,
    ) -> Appended:
        """Check a record batch and append it; raises as check() and append_checked() do."""
        checked = check_batch(
            records, self.config, now_ms, self.name, from_client=from_client, allowance=allowance
        )
        return self.append_checked(checked, now_ms=now_ms, from_client=from_client)

    def check(self, records: Buffer, *, now_ms: int, allowance: Allowance) -> CheckedBatch:
        """Check a client's batch, except for its place in the log; may run in a thread.

        The allowance is shared by all batches of the request. Raises the StorageError that says
        why the batch is refused, or TooLaborious.
        """
        return check_batch(
            records, self.config, now_ms, self.name, from_client=True, allowance=allowance
        )

    def append_checked(
        self, checked: CheckedBatch, *, now_ms: int, from_client: bool = True
    ) -> Appended:
        """Append a batch that was checked; its base offset and leader epoch are overwritten.

        Raises the StorageError that says why the batch is refused; then no part of it is in the
        log. A batch that an idempotent producer repeats gets the offsets of the first time.
        """
        batch = checked.header
        marker = None
        if batch.producer_id >= 0:
            if batch.is_control:
                marker = read_marker(batch, checked.data)
                if marker is None:
                    raise InvalidRecord(f"{self.name}: the control batch ends no transaction")
                self.producers.check_marker(marker)
            else:
                repeated = self.producers.check(batch, from_client=from_client)
                if repeated is not None:
                    return Appended.again(repeated)
        config = self.config
        size = len(checked.data)
        base_offset = self.log_end_offset
        last_offset = base_offset + batch.last_offset_delta
        max_timestamp = batch.max_timestamp
        active = self.segments[-1]
        reason = must_roll(config, active, size, last_offset, max_timestamp, now_ms)
        if reason is not None or self._is_half_rolled:
            self.roll(now_ms, reason or "an earlier roll failed")
            active = self.segments[-1]
        patch_base_offset_and_epoch(checked.data, 0, base_offset, self.leader_epoch)
        aborted = self.producers.aborted_by(marker, base_offset) if marker is not None else None
        active.append(
            (checked.data,), size, last_offset, max_timestamp, config.index_interval_bytes, aborted
        )
        self.log_end_offset = last_offset + 1
        if self.uncommitted is not None:
            self.uncommitted.add(checked.data, base_offset, last_offset + 1)
        if batch.producer_id >= 0 and marker is None:
            self.producers.update(batch, last_offset)
        if self.on_append is not None:
            self.on_append(self, size, last_offset + 1 - base_offset)
        if marker is not None:
            self._directory_dirty |= aborted is not None  # its index may be a new file
            self._end_transaction(marker, base_offset)
        return Appended(base_offset, last_offset, checked.log_append_time_ms)

    def _end_transaction(self, marker: Marker, offset: int) -> None:
        first_offset = self.producers.first_open_offset
        if not self.producers.end_transaction(marker):
            return
        if self.uncommitted is not None:
            assert first_offset is not None, "it has ended"
            self.uncommitted.ended(first_offset, offset)
        elif self.on_stable is not None:
            self.on_stable(self)

    def committed(self, end_offset: int) -> None:
        """Note that the WAL has committed all before an offset of this shared log."""
        assert self.uncommitted is not None
        self.recovery_point = end_offset
        if self.uncommitted.committed(end_offset) and self.on_stable is not None:
            self.on_stable(self)

    def append_marker(self, marker: Marker) -> Appended:
        """Append the control batch that ends a producer's transaction.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced or DiskFailure; then no part of
        the batch is in the log.
        """
        self.producers.check_marker(marker)  # its version is not in the batch
        return self.append(marker.encode(), now_ms=marker.timestamp, from_client=False)

    def roll(self, now_ms: int, reason: str = "asked to") -> None:
        """Seal the active segment and begin a new one at the log's end."""
        old = self.active
        if old.size_bytes == 0:
            return
        if not self.has_durable_names:  # a crash could keep the name of the new one only
            self.sync_names()
        # A failed roll may leave files of the new segment, which imply that the old one ends here.
        self._is_half_rolled = True
        old.seal()
        self.producers.write_snapshot(self.log_end_offset)
        new = self._new_segment(self.log_end_offset, now_ms)
        self._is_half_rolled = False
        self._size_before_active += old.size_bytes
        self.segments = (*self.segments, new)
        self._directory_dirty = True
        logger.debug(
            "rolled segment topic=%s partition=%d base=%d because=%r",
            self.topic, self.partition, new.base_offset, reason,
        )  # fmt: skip
        if self.on_roll is not None:
            self.on_roll(self)

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        made = begin_segment(self._fs, self.directory, base_offset, self.config)
        made.created_ms = now_ms
        made.roll_jitter_ms = draw_roll_jitter_ms(self.config, self._random)
        return made

    # --- durability -----------------------------------------------------------------------

    def unflushed(self) -> Unflushed:
        """Return the part that must reach the disk to make the log durable up to its end."""
        first = self._first_unflushed()
        directory = self.directory if self._directory_dirty else None
        self._directory_dirty = False
        handover, self._handover = self._handover, None
        small_files, self.unsynced = (*self.unsynced, *self.producers.take_unsynced()), []
        return Unflushed(
            self._fs,
            self.segments[first:],
            small_files,
            directory,
            self.log_end_offset,
            handover,
        )

    def _first_unflushed(self) -> int:
        # A segment sealed after all its batches were flushed has indexes that were not flushed.
        first = segment_index(self.segments, self.recovery_point)
        while first > 0 and not self.segments[first - 1].is_durable:
            first -= 1
        return first

    def flushed(self, end_offset: int) -> None:
        """Note that every batch before an offset is on the disk."""
        self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset))
        self.active.has_durable_names = True  # its first flush has synced the directory

    @property
    def has_durable_names(self) -> bool:
        """Whether a crash keeps the names of all files; not known of a new log."""
        return self.active.has_durable_names

    def sync_names(self) -> None:
        """Make the names of the files durable; may run in a thread. Raises DiskFailure."""
        active = self.active  # before the sync, which covers no later one
        self._fs.sync_directory(self.directory)
        active.has_durable_names = True

    # --- trimming and replacing -----------------------------------------------------------

    def advance_start_offset(self, offset: int) -> None:
        """Make records before an offset unreadable (DeleteRecords); segments are deleted later.

        Raises OffsetOutOfRange beyond the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"{self.name}: cannot delete records up to {offset}, "
                f"the log ends at {self.high_watermark}"
            )
        if offset > self.log_start_offset:
            # In this order, as in delete_segments().
            self._epochs.truncate_start(offset)
            self.log_start_offset = offset

    def delete_segments(self, count: int, now_ms: int) -> int:
        """Delete the first `count` segments; return the bytes that this frees.

        When these are all segments, a new active segment begins at the log's end first.
        """
        if count >= len(self.segments):
            self.roll(now_ms)
            count = min(count, len(self.segments) - 1)
        gone, kept = self.segments[:count], self.segments[count:]
        if not gone:
            return 0
        if self._exchange is not None and self._exchange.concerns(gone):
            self._settle_exchange()
        if self._directory_dirty:
            # If a crash kept the removals and lost the later segments, offsets would go back.
            self._fs.sync_directory(self.directory)
        # The epochs come first: to recovery, a start offset that they do not have is damage.
        start_offset = max(self.log_start_offset, kept[0].base_offset)
        self._epochs.truncate_start(start_offset)
        self.log_start_offset = start_offset
        self._directory_dirty = True
        size = 0
        for segment in gone:
            # A segment whose renaming fails stays in the log, to be flushed and tried again.
            self.retire([segment], now_ms)
            self.segments = self.segments[1:]
            self._size_before_active -= segment.size_bytes
            size += segment.size_bytes
        return size

    def replace_segments(
        self, old: Sequence[Segment], new: Sequence[Segment], now_ms: int
    ) -> None:
        """Replace segments with the cleaned ones that were made from them, in one call.

        Raises StaleSegments and DiskFailure.
        """
        exchange = self.begin_exchange(old, new, now_ms)
        carry_out(exchange.sync, exchange.step, exchange.undo)

    def begin_exchange(
        self, old: Sequence[Segment], new: Sequence[Segment], now_ms: int
    ) -> Exchange:
        """Begin to replace old segments with cleaned ones; carry_out() continues.

        `new` have the suffix .cleaned and are flushed. A crash cannot break the exchange (see
        storage.exchange). Raises StaleSegments when any of `old` is no longer part of the log,
        and DiskFailure.
        """
        if self.is_closed or self._place_of(old) is None:
            raise StaleSegments(f"{self.name}: segments changed while they were cleaned")
        self._settle_exchange()
        self._exchange = Exchange(self._fs, self, old, new, now_ms)
        return self._exchange

    def _place_of(self, old: Sequence[Segment]) -> tuple[int, int] | None:
        """Return the place of consecutive segments in the log, None if they are not there."""
        current = self.segments
        first = next((at for at, s in enumerate(current) if s is old[0]), -1)
        end = first + len(old)
        if first < 0 or list(current[first:end]) != list(old):
            return None
        assert end < len(current), "the active segment is never replaced"
        return first, end

    def _settle_exchange(self) -> None:
        """Undo or finish an exchange in progress, or one that a disk failure interrupted."""
        if self._exchange is not None:
            self._exchange.settle()
            self._exchange = None

    def switch(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put cleaned segments in the place of old ones (storage.exchange)."""
        place = self._place_of(old)
        assert place is not None, "each change of segments settles the exchange first"
        first, end = place
        for segment in new:
            segment.is_durable = True
        self.segments = (*self.segments[:first], *new, *self.segments[end:])
        self._size_before_active = sum(s.size_bytes for s in self.segments[:-1])

    def touch_directory(self) -> None:
        """Let the next flush make the directory's names durable."""
        self._directory_dirty = True

    def retire(
        self, gone: Sequence[Segment], now_ms: int, replaced_by: Sequence[Segment] = ()
    ) -> None:
        """Rename segments to .deleted, to be removed when file.delete.delay.ms has passed."""
        paths = []
        kept = {segment.base_offset for segment in replaced_by}
        for segment in gone:
            if segment.base_offset not in kept:
                self.producers.remove_snapshot(segment.base_offset)
            segment.rename(DELETED)
            paths += [segment.path(kind) for kind in SUFFIXES]
        if self.on_files_deleted is not None:
            self.on_files_deleted(paths, now_ms + self.config.file_delete_delay_ms)
        else:
            for path in paths:
                self._fs.remove(path)

    def settle(self) -> bool:
        """End an exchange in progress; return whether the segments may be copied now."""
        self._settle_exchange()
        return not (self.is_closed or self._is_half_rolled)

    def relocate(
        self,
        directory: Path,
        segments: Sequence[Segment],
        epochs: LeaderEpochs,
        handover: Callable[[], None],
    ) -> None:
        """Continue with segments of the same batches in another directory.

        The next flush calls `handover` before it counts anything as durable.
        """
        self.directory, self.segments, self._epochs = directory, tuple(segments), epochs
        self.producers.move(directory)
        self._size_before_active = sum(s.size_bytes for s in self.segments[:-1])
        unsure = next((s for s in self.segments if not s.is_durable), self.active)
        self.recovery_point = min(self.recovery_point, unsure.base_offset)
        self._directory_dirty = True
        self._handover = handover

    def close(self) -> None:
        """Make everything durable, with a snapshot of the producers; the log is not used again."""
        self._settle_exchange()
        has_begun = self.active.base_offset or self.active.log.size() or len(self.producers)
        if has_begun or self._handover is not None:  # if not, a crash can take nothing
            self.active.seal()
            self.active.flush()
            self.producers.write_snapshot(self.log_end_offset)
            self._directory_dirty = True
            self.unflushed().sync()
        self.recovery_point = self.log_end_offset
