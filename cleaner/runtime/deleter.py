"""Carries out retention: checks every log in turn, at its own interval, on the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from odradek.cleaner.rules.facts import SegmentFacts, largest_timestamp
from odradek.cleaner.rules.retention import Deletion, plan_deletion
from odradek.config.broker import BrokerConfig
from odradek.protocol.errors import ProtocolError
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

# The number of logs that one call in a thread checks.
_LOGS_AT_ONCE = 100


class Deleter:
    """Deletes old segments; owned by the event loop. No compaction makes it wait."""

    def __init__(
        self,
        logs: Iterable[Log],
        config: Callable[[], BrokerConfig],
        clock_ms: Callable[[], int],
    ) -> None:
        self._logs, self._config, self._clock_ms = logs, config, clock_ms
        self._task: asyncio.Task[None] | None = None
        # Called with a log whose segments could not be deleted because of the disk.
        self.on_failed: Callable[[Log, StorageError], None] = lambda log, error: None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to check, for the first time after log.initial.task.delay.ms."""
        self._task = loop.create_task(self._run())

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def check_all(self) -> int:
        """Check every log once; return the bytes deleted."""
        deleted_bytes = 0
        logs = [log for log in self._logs if log.log_end_offset > log.segments[0].base_offset]
        for start in range(0, len(logs), _LOGS_AT_ONCE):
            deleted_bytes += await self._check(logs[start : start + _LOGS_AT_ONCE])
        return deleted_bytes

    async def _check(self, logs: Sequence[Log]) -> int:
        """Check logs. A thread finds the age of their segments, as that may read the disk."""
        now_ms = self._clock_ms()
        for log in logs:
            _ = log.active.max_timestamp  # computed here, on the loop, which appends
        before = [(log.segments, log.log_end_offset) for log in logs]
        plans = await asyncio.to_thread(lambda: [_plan(log, now_ms) for log in logs])
        deleted_bytes = 0
        for log, (segments, end_offset), plan in zip(logs, before, plans, strict=True):
            if plan is None or log.is_closed:
                continue
            if log.segments[: plan.count] != segments[: plan.count]:
                continue  # they were cleaned or deleted meanwhile
            if plan.count == len(segments) and log.log_end_offset != end_offset:
                continue  # the batches appended meanwhile are young
            deleted_bytes += _carry_out(log, plan, now_ms, self.on_failed)
            await asyncio.sleep(0)  # Each may wait for the disk: let other tasks run.
        return deleted_bytes

    async def _run(self) -> None:
        await asyncio.sleep(self._config().log_initial_task_delay_ms / 1000)
        while True:
            try:
                await self.check_all()
            except Exception:  # The root of a task: the next check may succeed.
                logger.exception("failed to check retention")
            await asyncio.sleep(self._config().log_retention_check_interval_ms / 1000)


def check_retention(log: Log, now_ms: int) -> int:
    """Delete a log's segments whose retention is over; return their bytes.

    A log that cannot be read, or whose files cannot be renamed, is left unchanged.
    """
    plan = _plan(log, now_ms)
    return _carry_out(log, plan, now_ms, lambda log, error: None) if plan else 0


def _carry_out(
    log: Log, plan: Deletion, now_ms: int, on_failed: Callable[[Log, StorageError], None]
) -> int:
    try:
        log.delete_segments(plan.count, now_ms)
    except StorageError as error:
        logger.exception("failed to apply retention log=%s", log.name)
        on_failed(log, error)
        return 0
    logger.info(
        "deleted segments log=%s count=%d bytes=%d because=%r log_start_offset=%d",
        log.name, plan.count, plan.size_bytes, plan.reason, log.log_start_offset,
    )  # fmt: skip
    return plan.size_bytes


def _plan(log: Log, now_ms: int) -> Deletion | None:
    """Plan a log's deletions by retention; None for a log that cannot be read."""
    try:
        return _find_deletion(log, now_ms)
    except (StorageError, ProtocolError):
        logger.exception("failed to read the age of segments log=%s", log.name)
        return None


def _find_deletion(log: Log, now_ms: int) -> Deletion | None:
    config = log.config
    needs_timestamps = config.delete and config.retention_ms >= 0
    segments = log.segments
    # Lazily: mostly the first segment stays, and then no other need be read. A segment that a
    # cleaning has emptied is as old as its file; without an age it would keep all that follow.
    facts = (
        SegmentFacts(
            segment.base_offset,
            segment.size_bytes,
            largest_timestamp(segment)
            if needs_timestamps and (segment.size_bytes or segment is not segments[-1])
            else None,
        )
        for segment in segments
    )
    return plan_deletion(
        config,
        facts,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        size_bytes=log.size_bytes,
        now_ms=now_ms,
    )
