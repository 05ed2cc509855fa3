"""Decides which log to compact, how far, and in which pieces: pure, over frozen facts.

The words are Kafka's. A log's head, from its first dirty offset on, has not been cleaned; its
tail has. The ratio of cleanable bytes measures how filthy a log is. Source: LogCleanerManager,
LogToClean and Cleaner.groupSegmentsBySize of Kafka 4.3.

    0                first dirty offset        first uncleanable offset     log end offset
    |  tail: clean   |  head: will be cleaned  |  head: too young, or active  |

1. A segment is cleaned whole or not at all.
2. The active segment is left alone, and so is the first dirty segment with an unstable or too
   young record, with all that follow it.
3. A group of several segments is within the sizes of a segment and of its indexes, and within the
   offsets that its indexes can name.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum

from odradek.cleaner.rules.facts import LogFacts, SegmentFacts
from odradek.dataclass import dataclass

# The widest range of offsets that a segment's indexes can name.
OFFSET_SPAN_MAX = 2**31 - 1
_SETTLED_RATIO = 2
_EXPIRY_RUNS = 10
# Few records with a key and a value are smaller than this: more offsets must include gaps.
_RECORD_BYTES = 16


class Bound(Enum):
    """The bound that keeps the rest of a log from being cleaned."""

    ACTIVE_SEGMENT = "the active segment"
    LAST_STABLE_OFFSET = "the last stable offset"
    MIN_COMPACTION_LAG = "min.compaction.lag.ms"


class Reason(Enum):
    """The reason to clean a log."""

    OVERDUE = "max.compaction.lag.ms has passed"
    DIRTY = "it is dirtier than min.cleanable.dirty.ratio"
    EXPIRED = "tombstones or markers have expired"
    SURVEY = "it is not known when its tombstones and markers expire"
    ASKED = "somebody asked for it"
    RETRY = "its last cleaning failed"


class CheckpointProblem(Enum):
    """The reason why the cleaner's checkpoint cannot be the first dirty offset."""

    BELOW_LOG_START = "lies before the log start offset"
    BEYOND_LOG_END = "lies beyond the log end offset"


@dataclass(frozen=True, slots=True)
class DirtyRange:
    """The offset up to which a log is clean, and the offset up to which it can be cleaned now."""

    first_dirty_offset: int
    first_uncleanable_offset: int  # the base offset of the first segment that is left alone
    clean_bytes: int
    cleanable_bytes: int
    bound: Bound
    overdue_ms: int  # the time by which max.compaction.lag.ms is exceeded, or 0
    # The time since tombstones or markers could be removed, None when none could.
    expired_ms: int | None
    checkpoint_problem: CheckpointProblem | None

    @property
    def total_bytes(self) -> int:
        """The bytes of all segments that count, clean and cleanable."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """The dirty share of the total bytes."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


@dataclass(frozen=True, slots=True)
class SegmentSizes:
    """The sizes by which segments are grouped."""

    base_offset: int
    log_bytes: int
    index_bytes: int
    time_index_bytes: int


def dirty_range(
    log: LogFacts, checkpoint: int | None, now_ms: int, horizon_ms: int | None = None
) -> DirtyRange:
    """Find the range of a log that can be cleaned; it begins where the clean part ends.

    `horizon_ms` is the time when the first tombstone or marker of the clean part expires.
    """
    first_dirty, problem = _first_dirty_offset(log, checkpoint)
    uncleanable, bound = _first_uncleanable_offset(log, first_dirty, now_ms)
    # A segment is cleaned whole or not at all.
    end = _segments_from(log.segments, max(first_dirty, uncleanable))[0].base_offset
    return DirtyRange(
        first_dirty,
        end,
        sum(s.size_bytes for s in log.segments if s.base_offset < first_dirty),
        sum(
            s.size_bytes
            for s in _segments_from(log.segments, min(first_dirty, end))
            if s.base_offset < end
        ),
        bound,
        _overdue_ms(log, first_dirty, now_ms),
        _expired_ms(log, first_dirty, horizon_ms, now_ms),
        problem,
    )


def clean_range(log: LogFacts, dirty: DirtyRange) -> DirtyRange:
    """Return the range of a cleaning that only removes expired tombstones and markers.

    Such a cleaning leaves dirty records alone: if it cleaned them too, it would give each new
    tombstone a horizon of its own, which would cause the next cleaning.
    """
    end = _segments_from(log.segments, dirty.first_dirty_offset)[0].base_offset
    return replace(dirty, first_uncleanable_offset=end, cleanable_bytes=0)


def expiry_due_ms(log: LogFacts, first_dirty_offset: int, horizon_ms: int) -> int:
    """Return when a horizon makes a log cleanable: a little later, so that several share a run.

    Horizons lie as far apart as the cleanings that set them. At most ten runs in the time of
    delete.retention.ms cover all of them. A log with later records may soon be cleaned for these,
    as in Kafka, and the same run removes tombstones: so they wait for segment.ms, the longest
    time in which appends seal a segment.
    """
    wait_ms = log.config.delete_retention_ms // _EXPIRY_RUNS
    if log.log_end_offset > first_dirty_offset:
        wait_ms = max(wait_ms, log.config.max_segment_ms)
    return horizon_ms + wait_ms


def reason_to_clean(log: LogFacts, dirty: DirtyRange) -> Reason | None:
    """Return the reason to clean a log now, None when there is none."""
    if dirty.cleanable_bytes > 0:
        if dirty.overdue_ms > 0:
            return Reason.OVERDUE
        if dirty.cleanable_ratio > log.config.min_cleanable_dirty_ratio:
            return Reason.DIRTY
    return Reason.EXPIRED if dirty.expired_ms is not None else None


def must_count(dirty: DirtyRange) -> bool:
    """Return whether the dirty records are counted by a read: their offsets may have gaps."""
    offsets = dirty.first_uncleanable_offset - dirty.first_dirty_offset
    return offsets > dirty.cleanable_bytes // _RECORD_BYTES


def pays_alone(dirty: DirtyRange, kept_bytes: int, ratio: float) -> bool:
    """Return whether it pays to clean the dirty section alone, of which some bytes are kept.

    `ratio` is min.cleanable.dirty.ratio, the reason of the run. A full run writes the clean
    section as well. It is put off for long enough if the kept bytes are at most half of those for
    which the ratio asks again. `bench/year.py` compares the costs. If nothing is obsolete, the
    ratio asks still, and it does not pay: so a complete run follows one that was in vain.
    """
    is_little = 2 * kept_bytes * (1 - ratio) <= dirty.clean_bytes * ratio
    return dirty.clean_bytes > 0 and is_little


def urgency(dirty: DirtyRange, reason: Reason | None = None) -> tuple[bool, int, float, int]:
    """Return the sort key of cleanable logs: overdue logs first, then the filthiest.

    Kafka gives overdue logs no priority, so that a busy cleaner may never clean them. Logs that
    have only expired tombstones to remove come last. A retry comes before all of them: its
    moment is announced, and its back-off keeps it rare.
    """
    is_retry = reason is Reason.RETRY
    return is_retry, dirty.overdue_ms, dirty.cleanable_ratio, dirty.expired_ms or 0


def group_segments(
    segments: Sequence[SegmentSizes],
    *,
    log_bytes_max: int,
    index_bytes_max: int,
    end_offset: int,
) -> list[range]:
    """Group consecutive segments, as ranges of indexes, so that each group becomes one segment.

    A group stays within the given sizes and within the offsets that indexes can name; the next
    segment begins at `end_offset`.
    """
    groups: list[range] = []
    start = 0
    log_bytes = index_bytes = time_index_bytes = 0
    for at, segment in enumerate(segments):
        log_bytes += segment.log_bytes
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
        after = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
        # An empty segment may join any group: otherwise one would stay for every 2^31 offsets.
        in_span = segment.log_bytes == 0 or (
            after - 1 - segments[start].base_offset <= OFFSET_SPAN_MAX
        )
        fits = (
            log_bytes <= log_bytes_max
            and index_bytes <= index_bytes_max
            and time_index_bytes <= index_bytes_max
            and in_span
        )
        if at > start and not fits:
            groups.append(range(start, at))
            start = at
            log_bytes = segment.log_bytes
            index_bytes, time_index_bytes = segment.index_bytes, segment.time_index_bytes
    if segments:
        groups.append(range(start, len(segments)))
    return groups


def merge_groups(
    segments: Sequence[SegmentSizes],
    *,
    log_bytes_max: int,
    index_bytes_max: int,
    end_offset: int,
) -> list[range]:
    """Group consecutive segments as `group_segments` does, without those that stay alone."""
    groups = group_segments(
        segments,
        log_bytes_max=log_bytes_max,
        index_bytes_max=index_bytes_max,
        end_offset=end_offset,
    )
    log_bytes = [one.log_bytes for one in segments]
    return [part for group in groups for part in split_settled(log_bytes, group)]


def split_settled(sizes: Sequence[int], group: range) -> Iterator[range]:
    """Split off a group's first segments while each is far larger than all that follow it.

    A segment that stays alone may stay unchanged. A segment is merged with those that follow
    when it has at most twice their bytes: so every byte is copied only a few times while a log
    grows, and the number of small segments stays small. Kafka merges, and copies, at each run.
    """
    start = group.start
    for at in group:
        if sizes[at] > _SETTLED_RATIO * sum(sizes[at + 1 : group.stop]):
            if start < at:
                break
            yield range(at, at + 1)
            start = at + 1
        else:
            break
    if start < group.stop:
        yield range(start, group.stop)


def _first_dirty_offset(
    log: LogFacts, checkpoint: int | None
) -> tuple[int, CheckpointProblem | None]:
    if checkpoint is None:
        return log.log_start_offset, None
    if checkpoint < log.log_start_offset:
        return log.log_start_offset, CheckpointProblem.BELOW_LOG_START
    if checkpoint > log.log_end_offset:
        return log.log_start_offset, CheckpointProblem.BEYOND_LOG_END
    return checkpoint, None


def _first_uncleanable_offset(log: LogFacts, first_dirty: int, now_ms: int) -> tuple[int, Bound]:
    bounds = [
        (log.segments[-1].base_offset, Bound.ACTIVE_SEGMENT),
        (log.last_stable_offset, Bound.LAST_STABLE_OFFSET),
    ]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (
            s.base_offset
            for s in _segments_from(log.segments, first_dirty)[:-1]
            if s.largest_timestamp is not None and s.largest_timestamp > now_ms - lag_ms
        )
        bounds += [(offset, Bound.MIN_COMPACTION_LAG) for offset in young][:1]
    return min(bounds, key=lambda bound: bound[0])


def _overdue_ms(log: LogFacts, first_dirty: int, now_ms: int) -> int:
    firsts = [
        s.first_timestamp
        for s in _segments_from(log.segments, first_dirty)[:-1]
        if s.first_timestamp is not None and s.first_timestamp > 0
    ]
    until_ms = now_ms - log.config.max_compaction_lag_ms
    return max(0, until_ms - min(firsts)) if firsts else 0


def _expired_ms(
    log: LogFacts, first_dirty: int, horizon_ms: int | None, now_ms: int
) -> int | None:
    if horizon_ms is None:
        return None
    late_ms = now_ms - expiry_due_ms(log, first_dirty, horizon_ms)
    return late_ms if late_ms >= 0 else None


def _segments_from(segments: Sequence[SegmentFacts], offset: int) -> Sequence[SegmentFacts]:
    """Return the segments from the one that holds an offset on; at least the active one."""
    after = bisect_right(segments, offset, key=lambda segment: segment.base_offset)
    return segments[max(after - 1, 0) :]
