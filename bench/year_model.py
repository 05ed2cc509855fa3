"""Plays a year of appends to a log cleaner in numbers: exact keys and sizes, no files.

A log is a list of segments, and a segment is an array for each column of its records. Decisions
come from the project's own rules (`cleaner/rules/policy.py`, `due.py`); the passes are repeated
here over arrays (`cleaner/passes/clean.py`, `rewrite.py`). Kafka's cleaner decides by the same
rules, since they are Kafka's, with three differences (Cleaner.doClean, Cleaner.cleanSegments and
LogCleanerManager of Kafka 4.3): it rewrites each group of segments below the end of its range, it
merges all that fits into a segment, and expired tombstones alone cause no cleaning.

Batches have a fixed number of records, and begin at its multiples. A batch costs its header as
long as one of its records stays. Left out: transactions, producers' last batches, and the few
bytes that a record gains when the base timestamp of its batch changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from odradek.cleaner.rules.due import due_ms
from odradek.cleaner.rules.facts import LogFacts, SegmentFacts
from odradek.cleaner.rules.policy import (
    DirtyRange,
    Reason,
    SegmentSizes,
    clean_range,
    dirty_range,
    group_segments,
    pays_alone,
    reason_to_clean,
    split_settled,
)
from odradek.config.topic import TopicConfig
from odradek.protocol.batches import HEADER_SIZE
from odradek.storage.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.storage.rolling import segment_bytes_max

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NEVER = -1
# A key filter has at most so many keys, and is asked for at most so many dirty records, with the
# default log.cleaner.dedupe.buffer.size and one thread.
_BUFFER_BYTES = 128 << 20
_FILTER_KEYS_MAX = _BUFFER_BYTES // 64
_DIRTY_RECORDS_MAX = _BUFFER_BYTES // 32


@dataclass(frozen=True, slots=True)
class RecordSizes:
    """The bytes of a record with a value and of a tombstone, and the records of a batch."""

    value_bytes: int
    tombstone_bytes: int
    batch_records: int


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Records in order of offset: keys are numbers, `horizons` are in ms or NEVER."""

    offsets: Numbers
    keys: Numbers
    is_tombstone: Flags
    horizons: Numbers

    def take(self, chosen: Flags) -> Records:
        """Return the chosen records."""
        return Records(
            self.offsets[chosen],
            self.keys[chosen],
            self.is_tombstone[chosen],
            self.horizons[chosen],
        )

    def bytes(self, sizes: RecordSizes) -> int:
        """Return the size of a segment that holds them."""
        count = len(self.offsets)
        if not count:
            return 0
        tombstones = int(np.count_nonzero(self.is_tombstone))
        batches = 1 + int(np.count_nonzero(np.diff(self.offsets // sizes.batch_records)))
        values_bytes = (count - tombstones) * sizes.value_bytes
        return values_bytes + tombstones * sizes.tombstone_bytes + batches * HEADER_SIZE


@dataclass(frozen=True, slots=True, eq=False)
class SealedSegment:
    """A segment that no append changes any more."""

    records: Records
    facts: SegmentFacts
    next_horizon_ms: int | None  # when the first of its tombstones may go

    @classmethod
    def of(
        cls, base_offset: int, records: Records, sizes: RecordSizes, first_ms: int, last_ms: int
    ) -> SealedSegment:
        """Return the segment that holds records."""
        horizons = records.horizons[records.horizons != NEVER]
        facts = SegmentFacts(base_offset, records.bytes(sizes), last_ms, first_ms)
        return cls(records, facts, int(horizons.min()) if len(horizons) else None)

    @property
    def base_offset(self) -> int:
        """The offset at which it begins."""
        return self.facts.base_offset

    @property
    def size_bytes(self) -> int:
        """The size of its batches."""
        return self.facts.size_bytes


@dataclass(slots=True)
class Work:
    """The bytes that a cleaner has read (both passes) and written, its runs, its new segments."""

    read_bytes: int = 0
    written_bytes: int = 0
    runs: int = 0
    expiry_runs: int = 0
    new_segments: int = 0


@dataclass(slots=True)
class ModelLog:
    """A log whose active segment is outside: `end_offset` is where that begins."""

    sizes: RecordSizes
    config: TopicConfig
    key_count: int
    segments: list[SealedSegment] = field(default_factory=list)
    checkpoint: int | None = None
    end_offset: int = 0

    def facts(self) -> LogFacts:
        """Return the log's facts, for the rules."""
        end = self.end_offset
        segments = (*(one.facts for one in self.segments), SegmentFacts(end, 0))
        # The active segment has a record: appends are steady.
        return LogFacts("year", 0, self.config, 0, end + 1, end + 1, end + 1, segments)

    def groups(self, end_offset: int, start_offset: int = 0) -> list[range]:
        """Group the segments between offsets as Kafka does."""
        return group_segments(
            [
                self._sizes_of(one)
                for one in self.segments
                if start_offset <= one.base_offset < end_offset
            ],
            log_bytes_max=segment_bytes_max(self.config),
            index_bytes_max=self.config.segment_index_bytes,
            end_offset=end_offset,
        )

    def _sizes_of(self, segment: SealedSegment) -> SegmentSizes:
        entries = segment.size_bytes // self.config.index_interval_bytes
        return SegmentSizes(
            segment.base_offset,
            segment.size_bytes,
            entries * OFFSET_ENTRY.size,
            entries * TIME_ENTRY.size,
        )


class KafkaModel:
    """Kafka's cleaner."""

    def __init__(self, log: ModelLog) -> None:
        self.log, self.work = log, Work()
        # The last dirty offset of each key during a run.
        self._latest = np.full(log.key_count, NEVER, np.int64)

    def append(self, segment: SealedSegment) -> None:
        """Add a segment that was sealed now."""
        self.log.segments.append(segment)
        self.log.end_offset = int(segment.records.offsets[-1]) + 1

    def horizon_ms(self) -> int | None:
        """Return when the first tombstone of the clean part expires, if that causes a run."""
        return None

    def due_ms(self, now_ms: int) -> int | None:
        """Return when there is a reason to clean if nothing is appended."""
        return due_ms(self.log.facts(), self.log.checkpoint, now_ms, horizon_ms=self.horizon_ms())

    def run(self, now_ms: int) -> None:
        """Clean the log if there is a reason."""
        log, facts = self.log, self.log.facts()
        dirty = dirty_range(facts, log.checkpoint, now_ms, self.horizon_ms())
        reason = reason_to_clean(facts, dirty)
        if reason is None:
            return
        self.work.runs += 1
        if reason is Reason.EXPIRED:
            self.work.expiry_runs += 1
            dirty = clean_range(facts, dirty)
        self._clean(dirty, now_ms, reason)

    def _clean(self, dirty: DirtyRange, now_ms: int, reason: Reason) -> None:
        log, end = self.log, dirty.first_uncleanable_offset
        segments = [one for one in log.segments if one.base_offset < end]
        keys = self._index(segments, dirty.first_dirty_offset)
        made: list[SealedSegment] = []
        for group in self._groups(end):
            made += self._rewrite(segments[group.start : group.stop], dirty, now_ms)
        self._latest[keys] = NEVER
        log.segments[: len(segments)] = made
        log.checkpoint = end

    def _index(self, segments: Sequence[SealedSegment], first_dirty_offset: int) -> Numbers:
        """Note the last dirty offset of each key; return the keys."""
        dirty = [one for one in segments if one.base_offset >= first_dirty_offset]
        self.work.read_bytes += sum(one.size_bytes for one in dirty)
        keys = np.concatenate([one.records.keys for one in dirty] or [np.empty(0, np.int64)])
        for one in dirty:
            self._latest[one.records.keys] = one.records.offsets
        return keys

    def _groups(self, end_offset: int) -> Iterable[range]:
        return self.log.groups(end_offset)

    def _rewrite(
        self, group: Sequence[SealedSegment], dirty: DirtyRange, now_ms: int
    ) -> list[SealedSegment]:
        return [self._written(group, self._kept(group, now_ms))]

    def _kept(self, group: Sequence[SealedSegment], now_ms: int) -> Records:
        """Return the records of a group that stay, tombstones with their horizons."""
        horizon_ms = now_ms + self.log.config.delete_retention_ms
        parts = []
        for segment in group:
            records = segment.records
            self.work.read_bytes += segment.size_bytes
            stays = self._latest[records.keys] <= records.offsets
            stays &= (records.horizons == NEVER) | (records.horizons > now_ms)
            kept = records.take(stays)
            is_new = kept.is_tombstone & (kept.horizons == NEVER)
            parts.append(
                Records(
                    kept.offsets, kept.keys, kept.is_tombstone,
                    np.where(is_new, horizon_ms, kept.horizons),
                )
            )  # fmt: skip
        return joined(parts)

    def _written(self, group: Sequence[SealedSegment], kept: Records) -> SealedSegment:
        first, last = group[0].facts, group[-1].facts
        made = SealedSegment.of(
            first.base_offset,
            kept,
            self.log.sizes,
            first.first_timestamp or NEVER,
            last.largest_timestamp or NEVER,
        )
        self.work.written_bytes += made.size_bytes
        self.work.new_segments += 1
        return made


class OwnModel(KafkaModel):
    """Odradek's cleaner."""

    may_clean_alone: ClassVar[bool] = True

    def horizon_ms(self) -> int | None:
        """Return when the first tombstone of the clean part expires."""
        clean = self.log.checkpoint or 0
        horizons = (s.next_horizon_ms for s in self.log.segments if s.base_offset < clean)
        return min((one for one in horizons if one is not None), default=None)

    def _groups(self, end_offset: int) -> Iterable[range]:
        sizes = [one.size_bytes for one in self.log.segments]
        for group in self.log.groups(end_offset):
            yield from split_settled(sizes, group)

    def _rewrite(
        self, group: Sequence[SealedSegment], dirty: DirtyRange, now_ms: int
    ) -> list[SealedSegment]:
        (first, *others) = group
        if not others and self._is_skipped(first, dirty, now_ms):
            return [first]
        kept = self._kept(group, now_ms)
        is_same = len(kept.offsets) == len(first.records.offsets) and np.array_equal(
            kept.horizons, first.records.horizons
        )
        return [first] if not others and is_same else [self._written(group, kept)]

    def _clean(self, dirty: DirtyRange, now_ms: int, reason: Reason) -> None:
        alone = self.may_clean_alone and reason is Reason.DIRTY
        if not (alone and self._clean_alone(dirty)):
            super()._clean(dirty, now_ms, reason)

    def _clean_alone(self, dirty: DirtyRange) -> bool:
        """Clean the dirty section without the clean one, if that pays."""
        log, start, end = self.log, dirty.first_dirty_offset, dirty.first_uncleanable_offset
        first = sum(one.base_offset < start for one in log.segments)
        segments = [one for one in log.segments[first:] if one.base_offset < end]
        keys = self._index(segments, start)
        count = sum(len(one.records.keys) for one in segments)
        kept = sum(len(self._latest_of(one).keys) for one in segments)
        size_bytes = sum(one.size_bytes for one in segments)
        kept_bytes = round(kept / max(count, 1) * size_bytes)
        pays = pays_alone(dirty, kept_bytes, log.config.min_cleanable_dirty_ratio)
        if pays:
            sizes = [one.size_bytes for one in segments]
            made = [
                self._rewrite_alone(segments[part.start : part.stop])
                for group in log.groups(end, start)
                for part in split_settled(sizes, group)
            ]
            log.segments[first : first + len(segments)] = made
        else:
            self.work.read_bytes -= size_bytes  # the index of a complete run is the same
        self._latest[keys] = NEVER
        return pays

    def _rewrite_alone(self, group: Sequence[SealedSegment]) -> SealedSegment:
        self.work.read_bytes += sum(one.size_bytes for one in group)
        kept = joined([self._latest_of(one) for one in group])
        is_same = len(group) == 1 and len(kept.offsets) == len(group[0].records.offsets)
        return group[0] if is_same else self._written(group, kept)

    def _latest_of(self, segment: SealedSegment) -> Records:
        records = segment.records
        return records.take(self._latest[records.keys] <= records.offsets)

    def _is_skipped(self, segment: SealedSegment, dirty: DirtyRange, now_ms: int) -> bool:
        if segment.base_offset >= dirty.first_dirty_offset:
            return False
        horizon_ms, keys = segment.next_horizon_ms, segment.records.keys
        if horizon_ms is not None and horizon_ms <= now_ms:
            return False
        has_filter = len(keys) <= _FILTER_KEYS_MAX
        dirty_records = dirty.first_uncleanable_offset - dirty.first_dirty_offset
        if not has_filter or dirty_records > _DIRTY_RECORDS_MAX:
            return dirty_records <= 0
        return bool((self._latest[keys] == NEVER).all())


def joined(parts: Sequence[Records]) -> Records:
    """Return the records of all parts, one after the other."""
    return Records(
        np.concatenate([one.offsets for one in parts]),
        np.concatenate([one.keys for one in parts]),
        np.concatenate([one.is_tombstone for one in parts]),
        np.concatenate([one.horizons for one in parts]),
    )


def play(
    cleaner: KafkaModel,
    sealed: Iterable[tuple[int, SealedSegment]],
    start_ms: int,
    end_ms: int,
) -> None:
    """Give a cleaner's log its segments, each at the time of its sealing, up to the end."""
    now_ms = start_ms
    for at_ms, segment in sealed:
        now_ms = _clean_until(cleaner, now_ms, at_ms)
        cleaner.append(segment)
    _clean_until(cleaner, now_ms, end_ms)


def _clean_until(cleaner: KafkaModel, now_ms: int, end_ms: int) -> int:
    while (due := cleaner.due_ms(now_ms)) is not None and due < end_ms:
        now_ms = due
        cleaner.run(now_ms)
    return end_ms
