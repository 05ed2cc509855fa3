"""The lag of a reader.

For share groups see KIP-1226 and GroupCoordinatorService.describeShareGroupOffsets.
"""

from __future__ import annotations

from odradek.storage.log import Log


def lag(log: Log, offset: int) -> int:
    """Return the number of offsets from a reader's offset to the last stable one.

    Offsets below the log's start do not count: their records are gone.
    """
    return max(log.last_stable_offset - max(offset, log.log_start_offset), 0)


def share_lag(log: Log, start_offset: int, complete_count: int) -> int | None:
    """Return the number of records that a share group still has to read, None if unknown.

    It has finished with all records before its start, and with `complete_count` after that.
    """
    if start_offset < 0 or complete_count < 0:
        return None
    return log.high_watermark - start_offset - complete_count
