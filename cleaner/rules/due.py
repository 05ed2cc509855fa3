"""Predicts when a log will be cleaned, if nothing is appended to it: pure, over frozen facts.

In an unchanged log, the reasons for a cleaning come with time and never go: segments grow old
enough for min.compaction.lag.ms, records too old for max.compaction.lag.ms, tombstones expire, a
quarantine ends, the active segment is sealed in time. So bisection finds the first moment, over
the few moments at which anything changes at all, with the same functions that decide when that
moment comes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace

from odradek.cleaner.rules.facts import ActiveSegment, LogFacts, SegmentFacts
from odradek.cleaner.rules.policy import DirtyRange, dirty_range, expiry_due_ms, reason_to_clean
from odradek.cleaner.rules.quarantine import Standing
from odradek.config.values import INT64_MAX


def announced_ms(
    log: LogFacts,
    checkpoint: int | None,
    now_ms: int,
    standing: Standing,
    active: ActiveSegment,
    *,
    horizon_ms: int | None = None,
) -> int | None:
    """Return when a log is cleaned if nothing is appended to it, None if time causes no cleaning.

    The moment is now if there is a reason now. `horizon_ms` is the time when the first tombstone
    or marker expires. A thread must be free then, and topics must not change.
    """
    if standing.is_held:
        return None
    if standing.quarantined is not None:
        return max(now_ms, standing.quarantined.retry_at_ms)
    found = due_ms(log, checkpoint, now_ms, horizon_ms=horizon_ms)
    sealed_at_ms = active.overdue_at_ms
    if sealed_at_ms is None or (found is not None and found <= sealed_at_ms):
        return found
    after = due_ms(
        _sealed(log, active, sealed_at_ms),
        checkpoint,
        max(now_ms, sealed_at_ms),
        horizon_ms=horizon_ms,
    )
    return min((at_ms for at_ms in (found, after) if at_ms is not None), default=None)


def due_ms(
    log: LogFacts, checkpoint: int | None, now_ms: int, *, horizon_ms: int | None = None
) -> int | None:
    """Return when there is a reason to clean a log, None when time alone brings no reason."""
    return first_moment(
        log,
        checkpoint,
        now_ms,
        lambda dirty: reason_to_clean(log, dirty) is not None,
        horizon_ms=horizon_ms,
    )


def first_moment(
    log: LogFacts,
    checkpoint: int | None,
    start_ms: int,
    holds: Callable[[DirtyRange], bool],
    *,
    horizon_ms: int | None = None,
) -> int | None:
    """Return the first moment from a start on at which a condition holds for the dirty range.

    A condition that holds once must hold forever. None when time alone never fulfils it.
    """
    changes = set(_changes(log))
    if horizon_ms is not None:
        first_dirty_offset = dirty_range(log, checkpoint, start_ms).first_dirty_offset
        changes.add(expiry_due_ms(log, first_dirty_offset, horizon_ms))
    moments = [start_ms, *sorted(at for at in changes if start_ms < at <= INT64_MAX)]
    at = bisect_left(
        moments,
        True,
        key=lambda moment_ms: holds(dirty_range(log, checkpoint, moment_ms, horizon_ms)),
    )
    return moments[at] if at < len(moments) else None


def _sealed(log: LogFacts, active: ActiveSegment, sealed_at_ms: int) -> LogFacts:
    """Return the state of a log after max.compaction.lag.ms has sealed its active segment."""
    sealed = SegmentFacts(
        active.base_offset,
        active.size_bytes,
        active.largest_timestamp if log.config.min_compaction_lag_ms > 0 else None,
        sealed_at_ms - log.config.max_compaction_lag_ms - 1,
    )
    segments = (*log.segments[:-1], sealed, SegmentFacts(log.log_end_offset, 0))
    return replace(log, segments=segments)


def _changes(log: LogFacts) -> Iterator[int]:
    """Yield the moments at which segments become old enough, or too old."""
    min_lag_ms, max_lag_ms = log.config.min_compaction_lag_ms, log.config.max_compaction_lag_ms
    for segment in log.segments:
        if min_lag_ms > 0 and segment.largest_timestamp is not None:
            yield segment.largest_timestamp + min_lag_ms
        if segment.first_timestamp is not None:
            yield segment.first_timestamp + max_lag_ms + 1
