"""Numbers of things, and times, in sentences."""

from __future__ import annotations


def count_words(count: int, thing: str) -> str:
    """Return "1 partition", "2,000 partitions"."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def span_words(span_ms: int) -> str:
    """Return a time in its largest whole unit: "7 days", "90 seconds"."""
    for unit_ms, unit in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute")):
        if span_ms >= unit_ms and span_ms % unit_ms == 0:
            return count_words(span_ms // unit_ms, unit)
    if span_ms % 1000:
        return count_words(span_ms, "millisecond")
    return count_words(span_ms // 1000, "second")
