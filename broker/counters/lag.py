"""The lag of a reader.

For share groups see KIP-1226 and GroupCoordinatorService.describeShareGroupOffsets.
"""

from __future__ import annotations

from odradek.storage.log import Log


def lag(log: Log, offset: int) -> int:
    """Return the number of offsets from a reader's offset to the last stable one.

    Offsets below the log's start do not count: their records are gone.
    """
    return lag_between(log.log_start_offset, log.last_stable_offset, offset)


def lag_between(start_offset: int, end_offset: int, offset: int) -> int:
    """Return the lag by the ends of a log, of which the second one is the last stable offset."""
    return max(end_offset - max(offset, start_offset), 0)


def share_lag(end_offset: int | None, start_offset: int, complete_count: int) -> int | None:
    """Return the number of records before an end that a share group still has to read.

    None if something is unknown. It has finished with all records before its start, and with
    `complete_count` after that.
    """
    if end_offset is None or start_offset < 0 or complete_count < 0:
        return None
    return end_offset - start_offset - complete_count
