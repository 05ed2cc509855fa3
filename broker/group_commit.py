"""Group commit: one trip to the disk for all appends that wait for it.

While one flush is under way, further logs that ask gather; the next flush takes them all. Under
load each fdatasync so carries many batches, and an idle broker flushes at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from storage.errors import StorageError
from storage.log import Log, Unflushed

logger = logging.getLogger(__name__)


class GroupCommit:
    """Carries logs to the disk by one thread. The event loop owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flush")
        self._logs: set[Log] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._is_running = False
        self.flushes = 0

    def flush(self, logs: Iterable[Log]) -> asyncio.Future[None]:
        """Return a future that is done when all that is in the logs now is on the disk.

        It fails with a StorageError when the disk does.
        """
        self._logs.update(logs)
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        if not self._is_running:
            self._start()
        return waiter

    def flush_in_background(self, log: Log) -> None:
        """Flush a log that nobody waits for; a failure is logged."""

        def done(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and future.exception() is not None:
                logger.error("failed to flush log=%s error=%s", log.name, future.exception())

        self.flush([log]).add_done_callback(done)

    def close(self) -> None:
        """Wait for the flush under way, and end the thread."""
        self._thread.shutdown()

    def _start(self) -> None:
        self._is_running = True
        logs = {log: log.unflushed() for log in self._logs if not log.is_deleted}
        waiters = self._waiters
        self._logs, self._waiters = set(), []
        running = self._loop.run_in_executor(self._thread, _sync, list(logs.values()))
        running.add_done_callback(lambda future: self._finish(future, logs, waiters))

    def _finish(
        self,
        future: asyncio.Future[None],
        logs: dict[Log, Unflushed],
        waiters: list[asyncio.Future[None]],
    ) -> None:
        self.flushes += 1
        error = future.exception()
        for log, unflushed in logs.items():
            if error is None:
                log.flushed(unflushed.end_offset)
            else:
                log.flush_failed()
        for waiter in waiters:
            if waiter.done():  # its client has gone
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
        self._is_running = False
        if self._waiters:
            self._start()


def _sync(parts: list[Unflushed]) -> None:
    failed: StorageError | None = None
    for part in parts:
        try:
            part.sync()
        except StorageError as error:
            failed = error
    if failed is not None:
        raise failed
