"""Frozen views of logs: what the cleaner's decisions are made from.

The event loop takes them, so that pure functions and threads can work on facts that do not
change under them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar, cast

from config.topic import TopicConfig
from storage.log import Log
from storage.segment import Segment


@dataclass(frozen=True, slots=True)
class SegmentView:
    """A segment as it was. Timestamps that no rule of the topic asks for are left out."""

    base_offset: int
    size_bytes: int
    largest_timestamp: int | None = None  # ms; the file's modification time without records
    first_timestamp: int | None = None  # ms; the first batch's largest


S = TypeVar("S")


@dataclass(frozen=True)  # without slots: they and Generic do not go together
class LogFacts(Generic[S]):
    """A log as it was."""

    topic: str
    partition: int
    config: TopicConfig
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    high_watermark: int
    segments: tuple[S, ...]  # the last one is active


LogView: TypeAlias = LogFacts[SegmentView]
# What a view is made from, noted in no time: for views that are made in a thread.
Glance: TypeAlias = LogFacts[Segment]


def glance_at(log: Log) -> Glance:
    """Note what there is of a log; on the event loop."""
    return Glance(
        log.topic,
        log.partition,
        log.config,
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        log.high_watermark,
        log.segments,
    )


def view_log(glance: Glance) -> LogView:
    """Take a view of a log for the choice of what to compact; may read the log's files.

    No rule asks for the active segment's timestamps, which only the loop may look up.
    """
    with_largest = glance.config.min_compaction_lag_ms > 0
    with_first = glance.config.max_compaction_lag_ms < 2**63 - 1
    *sealed, active = glance.segments
    views = [
        SegmentView(
            segment.base_offset,
            segment.size_bytes,
            largest_timestamp(segment) if with_largest else None,
            segment.first_timestamp() if with_first else None,
        )
        for segment in sealed
    ]
    views.append(SegmentView(active.base_offset, active.size_bytes))
    return replace(cast(LogView, glance), segments=tuple(views))


def largest_timestamp(segment: Segment) -> int:
    """Return a segment's largest timestamp in ms, or when it was written if it has none."""
    largest = segment.max_timestamp
    return largest if largest >= 0 else segment.modified_ms
