"""Appends batches as they are in another log, with their offsets and leader epochs.

As in a follower of Kafka's (UnifiedLog.appendAsFollower). Compaction may have left gaps between
them.
"""

from __future__ import annotations

from odradek.protocol.batches import BatchHeader
from odradek.storage.log import Log
from odradek.storage.rolling import must_roll
from odradek.storage.transactions import read_marker


def append_copied(
    log: Log, header: BatchHeader, batch: memoryview, now_ms: int, *, may_roll: bool = True
) -> None:
    """Append a batch at or after the end of a log that is not in use. Raises DiskFailure."""
    # Compaction has left nothing in between.
    log.log_end_offset = header.base_offset
    reason = must_roll(
        log.config,
        log.active,
        len(batch),
        header.last_offset,
        header.max_timestamp,
        now_ms,
    )
    if reason is not None and may_roll:
        log.roll(now_ms, reason)
    log.note_epoch(header.leader_epoch, header.base_offset)
    marker = read_marker(header, batch) if header.is_control else None
    producers = log.producers
    aborted = producers.aborted_by(marker, header.base_offset) if marker else None
    log.active.append(
        (batch,),
        len(batch),
        header.last_offset,
        header.max_timestamp,
        log.config.index_interval_bytes,
        aborted,
    )
    log.log_end_offset = header.next_offset
    if marker is not None:
        producers.end_transaction(marker)
        log.touch_directory()  # the index of aborted transactions may be a new file
    elif header.producer_id >= 0:
        producers.update(header, header.last_offset)
