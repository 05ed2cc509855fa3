"""Decides which segments to delete, by age, by size, or by the log start offset.

Pure: it reads frozen facts and returns a plan, which the event loop carries out. Retention has
its own schedule, and never waits for a compaction. Source: UnifiedLog.deleteOldSegments of
Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.cleaner.rules.facts import SegmentFacts
from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Deletion:
    """The first segments of a log to delete, and why.

    They may be all segments; then the log continues with a new active segment.
    """

    count: int
    size_bytes: int
    reason: str


def plan_deletion(
    config: TopicConfig,
    segments: Iterable[SegmentFacts],
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    size_bytes: int,
    now_ms: int,
) -> Deletion | None:
    """Plan the deletions by retention in a log whose segments come oldest first.

    Segments are read one by one, up to the first that stays. Segments before the log start
    offset go under every policy; age and size count for `delete` only.
    """
    excess_bytes = size_bytes - config.retention_bytes
    limits_size = config.delete and config.retention_bytes >= 0
    limits_age = config.delete and config.retention_ms >= 0
    count = deleted_bytes = 0
    reasons: dict[str, None] = {}
    remaining = iter(segments)
    segment = next(remaining, None)
    while segment is not None:
        following = next(remaining, None)
        end_offset = following.base_offset if following else log_end_offset
        if end_offset > high_watermark or (following is None and segment.size_bytes == 0):
            break
        largest = segment.largest_timestamp
        if following is not None and end_offset <= log_start_offset:
            reason = f"log start offset {log_start_offset}"
        elif limits_size and excess_bytes >= segment.size_bytes:
            reason = f"retention.bytes={config.retention_bytes}"
        elif limits_age and largest is not None and now_ms - largest > config.retention_ms:
            reason = f"retention.ms={config.retention_ms}"
        else:
            break
        reasons[reason] = None
        excess_bytes -= segment.size_bytes
        deleted_bytes += segment.size_bytes
        count += 1
        segment = following
    return Deletion(count, deleted_bytes, ", ".join(reasons)) if count else None
