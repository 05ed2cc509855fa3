"""How far a reader is behind."""

from __future__ import annotations

from storage.log import Log


def lag(log: Log, offset: int) -> int:
    """Return how many offsets a reader at an offset has before it, up to the last stable one.

    Offsets below the log's start are of records that are gone.
    """
    return max(log.last_stable_offset - max(offset, log.log_start_offset), 0)
