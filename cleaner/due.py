"""When a log will be cleanable, if nothing is appended to it: pure, over a frozen view.

For a log that stays as it is, whatever asks for its cleaning comes with time and never goes:
segments grow old enough for min.compaction.lag.ms, records too old for max.compaction.lag.ms,
tombstones expire, a quarantine ends. So the first moment is found by bisection over the few
moments at which anything changes at all, with the very functions that decide when it comes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from cleaner.policy import DirtyRange, dirty_range, expiry_due_ms, reason_to_clean
from cleaner.view import LogView
from config.values import INT64_MAX


def due_ms(
    log: LogView,
    checkpoint: int | None,
    now_ms: int,
    *,
    not_before_ms: int = 0,
    horizon_ms: int | None = None,
) -> int | None:
    """Return when there is a reason to clean a log, None when time alone brings none.

    That is now, if there is one now. `not_before_ms` is the end of a quarantine, `horizon_ms`
    when the first tombstone or marker expires.
    """
    start_ms = max(now_ms, not_before_ms)
    return first_moment(
        log,
        checkpoint,
        start_ms,
        lambda dirty: reason_to_clean(log, dirty) is not None,
        horizon_ms=horizon_ms,
    )


def first_moment(
    log: LogView,
    checkpoint: int | None,
    start_ms: int,
    holds: Callable[[DirtyRange], bool],
    *,
    horizon_ms: int | None = None,
) -> int | None:
    """Return the first moment from a start on at which something holds for the dirty range.

    It must be something that holds for good once it does. None when time alone never does it.
    """
    changes = set(_changes(log))
    if horizon_ms is not None:
        changes.add(expiry_due_ms(horizon_ms, log.config.delete_retention_ms))
    moments = [start_ms, *sorted(at for at in changes if start_ms < at <= INT64_MAX)]
    at = bisect_left(
        moments,
        True,
        key=lambda moment_ms: holds(dirty_range(log, checkpoint, moment_ms, horizon_ms)),
    )
    return moments[at] if at < len(moments) else None


def _changes(log: LogView) -> Iterator[int]:
    """Yield the moments at which segments grow old enough, or too old."""
    min_lag_ms, max_lag_ms = log.config.min_compaction_lag_ms, log.config.max_compaction_lag_ms
    for segment in log.segments:
        if min_lag_ms > 0 and segment.largest_timestamp is not None:
            yield segment.largest_timestamp + min_lag_ms
        if segment.first_timestamp is not None:
            yield segment.first_timestamp + max_lag_ms + 1
