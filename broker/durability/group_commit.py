"""Group commit: one flush to the disk for all appends that wait for it.

While one flush is under way, further logs gather; the next flush takes them all. So under load
each fdatasync carries many batches. An idle broker flushes once the step of the loop is over, in
which others may ask, too.

Invariants:

1. One flush runs at a time; its end begins the next one if logs are waiting (`_finish`).
2. A future is done by a flush that has begun after `flush` was called: it covers all records that
   were in the logs at that time.
3. A log with a failure is not flushed again, and the futures that wait for it fail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from odradek.broker.durability import sync_thread
from odradek.broker.durability.new_names import NewNames
from odradek.broker.durability.sync_thread import SyncThread
from odradek.storage.errors import StorageError
from odradek.storage.files import Opened
from odradek.storage.flushing import Unflushed
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

# A file system commits simultaneous syncs together: four threads sync fifty files in half of the
# time of one thread, and eight are hardly faster.
SYNC_THREADS_MAX = 4

Parts = Mapping[Log, Unflushed]
Failures = dict[Log, StorageError]
Synced = tuple[Log, Unflushed, Opened]
"""A log with one file to sync, which stays open for as long as this tuple is kept."""
Waiter = tuple[tuple[Log, ...], asyncio.Future[None]]


class GroupCommit:
    """Flushes logs to the disk, a group at a time. The event loop owns it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_slow_syncs: Callable[[int], None] = lambda count: None,
    ) -> None:
        """`on_slow_syncs` is called with the number of logs that no compiled thread synced."""
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="flush")
        # Once compiled, these threads share the files of a flush with one file per log.
        self._sync_threads: list[SyncThread] = []
        self._on_slow_syncs = on_slow_syncs
        self._waiters: list[Waiter] = []
        self._timers: dict[Log, asyncio.TimerHandle] = {}
        self.names = NewNames(loop)
        self._is_running = False
        self.flushes = 0
        # Returns a future of the commit of all that was appended to shared logs.
        self.committed: Callable[[], asyncio.Future[None]] | None = None
        # Returns a future of the time when producers may append more; None if they may now.
        self.room: Callable[[], asyncio.Future[None] | None] = lambda: None
        # Called with a log whose flush failed: some of its records may not be on the disk, and no
        # later flush can detect that (the system forgets a failure once it is reported).
        self.on_failed: Callable[[Log, StorageError], None] = lambda log, error: None

    def flush(self, logs: Iterable[Log]) -> asyncio.Future[Any]:
        """Return a future that is done when all records now in the logs are on the disk.

        Those of shared logs are committed to the WAL then. It fails with a StorageError when the
        flush of one of them fails.
        """
        logs = tuple(logs)
        if self.committed is not None:
            local = tuple(log for log in logs if not log.is_shared)
            if len(local) < len(logs):
                committed = self.committed()
                return asyncio.gather(committed, self._flush(local)) if local else committed
        return self._flush(logs)

    def _flush(self, logs: tuple[Log, ...]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((logs, done))
        if not self._is_running:
            self._is_running = True
            self._loop.call_soon(self._start)
        return done

    def flush_in_background(self, log: Log) -> None:
        """Flush a log without a waiter; a failure is logged."""

        def finished(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and future.exception() is not None:
                logger.error("failed to flush log=%s error=%s", log.name, future.exception())

        self.flush([log]).add_done_callback(finished)

    def flush_within(self, log: Log, wait_ms: int) -> None:
        """Flush a log with new appends after `wait_ms`, unless it is flushed before."""
        if log not in self._timers:
            self._timers[log] = self._loop.call_later(wait_ms / 1000, self._flush_late, log)

    def _flush_late(self, log: Log) -> None:
        del self._timers[log]
        if log.recovery_point < log.log_end_offset:
            self.flush_in_background(log)

    async def close(self) -> None:
        """Finish all flushes that were asked for, and end the threads."""
        for timer in self._timers.values():
            timer.cancel()
        self.names.close()
        while self._is_running:
            await self.flush(())
        self._thread.shutdown()
        for thread in self._sync_threads:
            thread.close()

    def _start(self) -> None:
        waiters, self._waiters = self._waiters, []
        logs = {log for asked, _ in waiters for log in asked if not log.is_deleted}
        parts = {log: log.unflushed() for log in logs if log.failure is None}
        if not self._sync_files(parts, waiters):
            self._on_slow_syncs(len(parts))
            try:
                running = self._loop.run_in_executor(self._thread, _sync, parts)
            except RuntimeError as error:  # the system cannot start a thread
                return self._finish({}, error, parts, waiters)
            running.add_done_callback(lambda future: self._finish_future(future, parts, waiters))

    def _sync_files(self, parts: Parts, waiters: Sequence[Waiter]) -> bool:
        """Let the compiled threads sync one file per log; return False if there is more to do."""
        if not 0 < len(parts) <= sync_thread.files_max:
            return False
        synced: list[Synced] = []
        try:
            for log, part in parts.items():
                file = part.file_to_sync()
                if file is None:
                    return False
                synced.append((log, part, file))
            while len(self._sync_threads) < min(len(synced), SYNC_THREADS_MAX):
                self._sync_threads.append(SyncThread(self._loop))
        except (StorageError, OSError):  # no descriptor or thread left: the other path reports it
            return False
        threads = self._sync_threads[: len(synced)]
        failures: Failures = {}
        missing = len(threads)

        def answered(share: Sequence[Synced], errors: list[OSError | None]) -> None:
            nonlocal missing
            for (log, part, _), error in zip(share, errors, strict=True):
                if error is not None:
                    failures[log] = part.fail(error)
            missing -= 1
            if not missing:
                self._finish(failures, None, parts, waiters)

        for at, thread in enumerate(threads):
            share = synced[at :: len(threads)]
            thread.sync([file.fd for _, _, file in share], partial(answered, share))
        return True

    def _finish_future(
        self, future: asyncio.Future[Failures], parts: Parts, waiters: Sequence[Waiter]
    ) -> None:
        bug = future.exception()
        self._finish({} if bug else future.result(), bug, parts, waiters)

    def _finish(
        self,
        failures: Failures,
        bug: BaseException | None,
        parts: Parts,
        waiters: Sequence[Waiter],
    ) -> None:
        self.flushes += 1
        for log, part in parts.items():
            # A log that has moved meanwhile is durable only in its old place.
            has_moved = part.segments[-1].directory != log.directory
            if bug is None and log not in failures and not has_moved:
                log.flushed(part.end_offset)
        for log, error in failures.items():
            if not log.is_closed:
                log.failure = error
                self.on_failed(log, error)
        for asked, done in waiters:
            if done.done():  # its client has gone
                continue
            # A log that was deleted meanwhile has no records left to flush.
            failed = next((log.failure for log in asked if log.failure is not None), None)
            problem = bug or failed
            if problem is not None:
                done.set_exception(problem)
            else:
                done.set_result(None)
        self._is_running = bool(self._waiters)
        if self._is_running:
            self._start()


def _sync(parts: Parts) -> Failures:
    """Flush each log, even after others fail; runs in the thread."""
    failures: Failures = {}
    for log, part in parts.items():
        try:
            part.sync()
        except StorageError as error:
            failures[log] = error
    return failures
