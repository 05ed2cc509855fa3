"""Numbers of things in sentences."""

from __future__ import annotations


def count_words(count: int, thing: str) -> str:
    """Return "1 partition", "2,000 partitions"."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
