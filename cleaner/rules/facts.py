"""The facts of logs by which the cleaner decides: frozen values, which do not change meanwhile.

The event loop notes a log's state, which takes no time; a thread then reads the facts of its
segments, which may wait for the disk. The rules are pure functions of the facts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, TypeAlias, TypeVar, cast

from odradek.config.topic import TopicConfig
from odradek.config.values import INT64_MAX
from odradek.dataclass import dataclass
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from odradek.storage.rolling import segment_bytes_max
from odradek.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment at one moment. Timestamps that no rule of the topic needs are left out."""

    base_offset: int
    size_bytes: int
    largest_timestamp: int | None = None  # ms; the file's modification time without records
    first_timestamp: int | None = None  # ms; the first batch's largest


@dataclass(frozen=True, slots=True)
class ActiveSegment:
    """The segment that takes appends, and when it will be sealed."""

    base_offset: int
    size_bytes: int
    bytes_left: int
    rolls_at_ms: int | None  # None while it is empty, or cannot be read
    # When max.compaction.lag.ms seals it without an append (cleaner/runtime/roller.py).
    overdue_at_ms: int | None = None
    largest_timestamp: int = -1  # ms


S = TypeVar("S")


@dataclass(frozen=True)  # without slots, which Generic does not allow
class LogState(Generic[S]):
    """A log at one moment."""

    topic: str
    partition: int
    config: TopicConfig
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    high_watermark: int
    segments: tuple[S, ...]  # the last one is active


LogFacts: TypeAlias = LogState[SegmentFacts]
# A thread reads the facts from this; it takes no time to note.
NotedState: TypeAlias = LogState[Segment]


def note_state(log: Log) -> NotedState:
    """Note the current state of a log; runs on the event loop."""
    return NotedState(
        log.topic,
        log.partition,
        log.config,
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        log.high_watermark,
        log.segments,
    )


def active_segment(log: Log) -> ActiveSegment:
    """Note how far a log's active segment is from being sealed; runs on the event loop."""
    active, config = log.active, log.config
    size_bytes, largest_ms = active.size_bytes, active.max_timestamp
    bytes_left = max(segment_bytes_max(config) - size_bytes, 0)
    if size_bytes == 0:
        return ActiveSegment(active.base_offset, 0, bytes_left, None)
    try:
        first_ms = active.first_timestamp()
    except StorageError:
        return ActiveSegment(active.base_offset, size_bytes, bytes_left, None)
    began_ms = first_ms if first_ms is not None and first_ms >= 0 else active.created_ms
    rolls_at_ms = began_ms + config.max_segment_ms - active.roll_jitter_ms + 1
    overdue_at_ms = None
    lag_ms = config.max_compaction_lag_ms
    if config.compact and lag_ms < INT64_MAX and first_ms is not None and first_ms > 0:
        overdue_at_ms = first_ms + lag_ms + 1
    return ActiveSegment(
        active.base_offset, size_bytes, bytes_left, rolls_at_ms, overdue_at_ms, largest_ms
    )


def read_facts(state: NotedState) -> LogFacts:
    """Read the facts by which a log is chosen to be compacted; may read the log's files.

    No rule needs the active segment's timestamps, which only the loop may look up.
    """
    with_largest = state.config.min_compaction_lag_ms > 0
    with_first = state.config.max_compaction_lag_ms < INT64_MAX
    *sealed, active = state.segments
    facts = [
        SegmentFacts(
            segment.base_offset,
            segment.size_bytes,
            largest_timestamp(segment) if with_largest else None,
            segment.first_timestamp() if with_first else None,
        )
        for segment in sealed
    ]
    facts.append(SegmentFacts(active.base_offset, active.size_bytes))
    return replace(cast(LogFacts, state), segments=tuple(facts))


def largest_timestamp(segment: Segment) -> int:
    """Return a segment's largest timestamp in ms, or the file's modification time without one."""
    largest = segment.max_timestamp
    return largest if largest >= 0 else segment.modified_ms
