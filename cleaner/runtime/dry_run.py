"""Dry runs, which find the outcome of a cleaning by doing all of it except the writing.

One dry run at a time is in progress, in a thread of its own, below the same rate as the cleaner's
threads. It occupies its log while it runs, so that it finds the same as a cleaning would.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent import futures
from enum import Enum

from odradek.cleaner.errors import CleaningAborted
from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.passes.throttle import Pace
from odradek.cleaner.rules.job import CleanerSettings, make_job
from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.runtime.progress import Running, find_candidate
from odradek.cleaner.runtime.resources import Resources
from odradek.cleaner.runtime.scheduler import Logs, Scheduler
from odradek.config.broker import BrokerConfig
from odradek.protocol.errors import ProtocolError
from odradek.storage.errors import StorageError
from odradek.storage.log import Log


class Missing(Enum):
    """The reason why there are no exact figures."""

    NOT_ASKED = "they were not asked for"
    NOTHING = "there is nothing to clean"
    CLEANED_NOW = "the log is being cleaned"
    BUSY = "another dry run is in progress"
    TOO_LONG = "computing them takes too long"
    ABORTED = "the log has changed meanwhile"
    FAILED = "the log cannot be read"


class _OutOfTime(Exception):
    """The time limit has passed."""


class DryRuns:
    """Runs cleanings without their effects; owned by the event loop."""

    def __init__(
        self,
        logs: Logs,
        scheduler: Scheduler,
        config: Callable[[], BrokerConfig],
        resources: Resources,
    ) -> None:
        self._logs, self._scheduler, self._config = logs, scheduler, config
        self._resources = resources
        self._is_busy = False
        self._current: futures.Future[CleanResult | Missing] | None = None
        self._pool = futures.ThreadPoolExecutor(1, thread_name_prefix="cleaner-dry-run")

    def close(self, timeout_s: float) -> None:
        """Wait for the end of a dry run that is stopping; runs in a thread.

        A dry run that is still compiling kernels is left behind.
        """
        if self._current is not None:
            futures.wait([self._current], timeout_s)
        self._pool.shutdown(wait=False)

    async def run(self, log: Log, deadline_s: float) -> CleanResult | Missing:
        """Find the outcome of cleaning a log, until `deadline_s`, a time of time.monotonic()."""
        if self._is_busy:
            return Missing.BUSY
        if self._scheduler.progress.standing(log).is_running:
            return Missing.CLEANED_NOW
        now_ms = self._resources.clock_ms()
        try:
            offsets = self._logs.directory_of(log)
            candidate = find_candidate(log, offsets, now_ms)
        except (StorageError, ProtocolError):
            return Missing.FAILED
        if candidate is None or candidate.dirty.cleanable_bytes == 0:
            return Missing.NOTHING
        settings = CleanerSettings.of(self._config())
        job = make_job(log, candidate.dirty, settings, now_ms, Reason.ASKED)
        running = Running(log, job, offsets, is_dry_run=True)
        self._is_busy = True
        self._scheduler.progress.begin(running)
        try:
            self._current = self._pool.submit(self._try, running, deadline_s)
            return await asyncio.wrap_future(self._current)
        finally:
            running.is_aborted = True  # a thread stops when its caller no longer waits
            self._scheduler.progress.end(running)
            self._is_busy = False

    def _try(self, running: Running, deadline_s: float) -> CleanResult | Missing:
        """Clean without an exchange; runs in the thread."""
        resources = self._resources
        # Numba takes a while to load; it is not needed before there is something to clean.
        resources.load_kernels()
        from odradek.cleaner.passes.clean import clean

        def must_stop() -> bool:
            if time.monotonic() > deadline_s:
                raise _OutOfTime
            return running.must_stop

        try:
            return clean(
                running.job,
                fs=resources.fs,
                random_below=resources.random_below,
                clock_ms=resources.clock_ms,
                before_io=Pace(resources.charge, resources.stopping, must_stop).before_io,
                propose=None,
            )
        except _OutOfTime:
            return Missing.TOO_LONG
        except CleaningAborted:
            return Missing.ABORTED
        except (StorageError, ProtocolError):
            return Missing.ABORTED if running.must_stop else Missing.FAILED
