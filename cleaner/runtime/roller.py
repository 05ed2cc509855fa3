"""Rolls active segments in time for max.compaction.lag.ms, on the event loop.

No cleaning touches the active segment, and only an append rolls it: the last records of a topic
that gets no more appends would never be compacted. So a compacted log with a finite lag begins a
new segment once the first batch of its active segment is older than the lag, by the cleaner's
rule (cleaner/rules/policy.py). Kafka waits for the next append.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from odradek.config.broker import BrokerConfig
from odradek.config.values import INT64_MAX
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from odradek.storage.segment import Segment

logger = logging.getLogger(__name__)

# The number of logs that one call in a thread checks.
_LOGS_AT_ONCE = 100
# A shorter rest, which settings could ask for, would not let other tasks run.
_REST_MIN_S = 0.01


class Roller:
    """Begins new segments where the lag requires it; owned by the event loop."""

    def __init__(
        self,
        logs: Iterable[Log],
        config: Callable[[], BrokerConfig],
        clock_ms: Callable[[], int],
        on_rolled: Callable[[], object],
    ) -> None:
        """`on_rolled` is called when there is something new to clean."""
        self._logs, self._config, self._clock_ms = logs, config, clock_ms
        self._on_rolled = on_rolled
        self._task: asyncio.Task[None] | None = None
        self._awake = asyncio.Event()
        # Called with a log that could not begin a new segment because of the disk.
        self.on_failed: Callable[[Log, StorageError], None] = lambda log, error: None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to check."""
        self._task = loop.create_task(self._run())

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def wake(self) -> None:
        """Check now: settings may have changed."""
        self._awake.set()

    async def check_all(self) -> int | None:
        """Check every log once; return when the next will be due, None if none will be."""
        logs = [log for log in self._logs if _is_concerned(log)]
        due_ms: list[int] = []
        for start in range(0, len(logs), _LOGS_AT_ONCE):
            due_ms += await self._check(logs[start : start + _LOGS_AT_ONCE])
        return min(due_ms, default=None)

    async def _check(self, logs: Sequence[Log]) -> list[int]:
        """Roll the logs that are due; return when the others will be due.

        The first timestamps are found in a thread, as that may read the disk.
        """
        actives = [log.active for log in logs]
        firsts = await asyncio.to_thread(lambda: [_first_timestamp(one) for one in actives])
        later = []
        has_rolled = False
        for log, active, first in zip(logs, actives, firsts, strict=True):
            if log.is_closed or log.active is not active or not _is_concerned(log):
                continue  # it was rolled or changed meanwhile
            if isinstance(first, StorageError):
                logger.error("failed to read the age of a segment log=%s: %s", log.name, first)
                self.on_failed(log, first)
                continue
            if first is None or first <= 0:
                continue  # without a timestamp nothing is ever overdue
            due_ms = first + log.config.max_compaction_lag_ms + 1
            if due_ms > self._clock_ms():
                later.append(due_ms)
                continue
            has_rolled |= self._roll(log)
            await asyncio.sleep(0)  # Each may wait for the disk: let other tasks run.
        if has_rolled:
            self._on_rolled()
        return later

    def _roll(self, log: Log) -> bool:
        try:
            log.roll(self._clock_ms(), "max.compaction.lag.ms")
        except StorageError as error:
            logger.error("failed to roll in time log=%s: %s", log.name, error)
            self.on_failed(log, error)
            return False
        return True

    async def _run(self) -> None:
        while True:
            self._awake.clear()
            due_ms = None
            try:
                due_ms = await self.check_all()
            except Exception:  # The root of a task: the next check may succeed.
                logger.exception("failed to look for segments to roll")
            rest_ms = self._config().log_cleaner_backoff_ms
            if due_ms is not None:
                rest_ms = min(rest_ms, due_ms - self._clock_ms())
            try:
                async with asyncio.timeout(max(rest_ms / 1000, _REST_MIN_S)):
                    await self._awake.wait()
            except TimeoutError:
                continue


def _is_concerned(log: Log) -> bool:
    config = log.config
    return (
        config.compact
        and config.max_compaction_lag_ms < INT64_MAX
        and log.active.size_bytes > 0
    )


def _first_timestamp(segment: Segment) -> int | StorageError | None:
    try:
        return segment.first_timestamp()
    except StorageError as error:
        return error
