"""How far a reader is behind.

Of a share group: KIP-1226, GroupCoordinatorService.describeShareGroupOffsets.
"""

from __future__ import annotations

from storage.log import Log


def lag(log: Log, offset: int) -> int:
    """Return how many offsets a reader at an offset has before it, up to the last stable one.

    Offsets below the log's start are of records that are gone.
    """
    return max(log.last_stable_offset - max(offset, log.log_start_offset), 0)


def share_lag(log: Log, start_offset: int, complete_count: int) -> int | None:
    """Return how many records a share group has to go, None while that is not known.

    It has done with all before its start, and with `complete_count` behind it.
    """
    if start_offset < 0 or complete_count < 0:
        return None
    return log.high_watermark - start_offset - complete_count
