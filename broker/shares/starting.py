"""The start of a share group in a partition it has not read before: share.auto.offset.reset."""

from __future__ import annotations

import asyncio

from odradek.broker.errors import Refusal
from odradek.broker.shares.batches import UNCHANGED_OFFSET
from odradek.broker.shares.state_records import ShareState
from odradek.config.group import reset_duration_ms
from odradek.protocol.errors import ErrorCode
from odradek.storage.log import Log

_EARLIEST, _LATEST = "earliest", "latest"


async def start_offset(log: Log, state: ShareState, reset: str, now_ms: int) -> int:
    """Return the offset at which a share-partition continues, or begins.

    Raises Refusal when no record is as young as the reset asks for, and StorageError.
    """
    if state.start_offset != UNCHANGED_OFFSET:
        return state.start_offset
    if reset == _EARLIEST:
        return log.log_start_offset
    if reset == _LATEST:
        return log.high_watermark
    timestamp = now_ms - reset_duration_ms(reset)
    _ = log.active.max_timestamp  # Cached here: the thread could miss an append meanwhile.
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(None, log.offset_for_timestamp, timestamp)
    if found is None:
        message = f"Offset for timestamp {timestamp} not found for topic partition: {log.name}"
        raise Refusal(ErrorCode.OFFSET_NOT_AVAILABLE, message)
    return found.offset
