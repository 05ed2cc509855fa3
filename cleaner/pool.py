"""The cleaner as the broker sees it: starts and stops its threads, tells how they are.

Compaction runs in `log.cleaner.threads` threads, retention on the event loop. The two share
this module, and neither waits for the other.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cleaner.deleter import Deleter
from cleaner.desk import Choice, Desk, Logs
from cleaner.progress import Quarantined
from cleaner.stats import CleanResult
from cleaner.throttle import Throttle
from cleaner.worker import Worker
from config.broker import BrokerConfig
from storage.checkpoints import TopicPartition
from storage.files import FileSystem

logger = logging.getLogger(__name__)

_RATE_MIN = 1.0  # a limit of nothing at all would stop the cleaner without a word
_STOP_S = 10.0
_RESTART_MIN_S = 1.0
_RESTART_MAX_S = 60.0


class Clock(Protocol):
    """Tells the time."""

    def now_ms(self) -> int:
        """Return the wall clock's time in milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """How the cleaner is, for metrics, /health and people."""

    threads_wanted: int
    threads_alive: int
    threads_died: int
    last_death: str | None
    running: tuple[TopicPartition, ...]
    quarantined: tuple[Quarantined, ...]
    last_choice: Choice
    results_by_thread: tuple[CleanResult, ...]
    last_results: tuple[CleanResult, ...]  # of each partition cleaned since the start


class CleanerPool:
    """The cleaner's threads and its retention task; owned by the event loop."""

    def __init__(
        self,
        logs: Logs,
        config: Callable[[], BrokerConfig],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        fs: FileSystem,
        random_below: Callable[[int], int] = secrets.randbelow,
    ) -> None:
        """`config` returns the settings in force; `random_below` must be hard to guess."""
        self._config, self._loop, self._clock, self._fs = config, loop, clock, fs
        self._random_below = random_below
        self._stopping = threading.Event()
        self._throttle = Throttle(time.monotonic)
        self.desk = Desk(logs, config, clock.now_ms)
        self.deleter = Deleter(logs, config, clock.now_ms)
        self._workers: dict[int, tuple[Worker, threading.Thread]] = {}
        self._deaths = 0
        self._last_death: str | None = None

    def start(self) -> None:
        """Start the threads and the retention task; returns at once."""
        self.deleter.start(self._loop)
        self.reconfigure()

    async def stop(self) -> None:
        """Abort what is being cleaned, and wait until all threads have ended.

        One that is still compiling kernels is left behind: it holds nothing that must be saved.
        """
        self._stopping.set()
        self.wake()
        await self.deleter.stop()
        for _, thread in list(self._workers.values()):
            await self._loop.run_in_executor(None, thread.join, _STOP_S)

    def reconfigure(self) -> None:
        """Start the threads that the settings ask for; those too many leave by themselves."""
        config = self._config()
        wanted = config.log_cleaner_threads if config.log_cleaner_enable else 0
        for number in range(wanted):
            if number not in self._workers:
                self._start_thread(number)
        self.wake()

    def wake(self) -> None:
        """Have resting threads look for work now."""
        for worker, _ in self._workers.values():
            worker.wake()

    def abort(self, topic: str, partition: int) -> None:
        """Make a cleaning in progress stop, if there is one."""
        self.desk.progress.abort(topic, partition)

    def pause(self, topic: str, partition: int) -> None:
        """Abort a partition's cleaning, and begin none until as many calls of resume()."""
        self.desk.progress.pause(topic, partition)

    def resume(self, topic: str, partition: int) -> None:
        """Undo one call of pause()."""
        self.desk.progress.resume(topic, partition)
        self.wake()

    def history(self, topic: str, partition: int) -> tuple[CleanResult, ...]:
        """Return a partition's last cleanings, the oldest first."""
        return self.desk.history(topic, partition)

    def status(self) -> PoolStatus:
        """Tell how the cleaner is."""
        config = self._config()
        return PoolStatus(
            threads_wanted=config.log_cleaner_threads if config.log_cleaner_enable else 0,
            threads_alive=sum(thread.is_alive() for _, thread in self._workers.values()),
            threads_died=self._deaths,
            last_death=self._last_death,
            running=tuple(
                (one.job.topic, one.job.partition) for one in self.desk.progress.running
            ),
            quarantined=self.desk.progress.quarantined,
            last_choice=self.desk.last_choice,
            results_by_thread=tuple(self.desk.results_by_thread.values()),
            last_results=self.desk.last_results(),
        )

    def problems(self) -> list[str]:
        """Return what an operator has to look at, a sentence each."""
        found = [
            f"partition {one.topic}-{one.partition} cannot be cleaned: {one.exception}"
            for one in self.desk.progress.quarantined
        ]
        if self._deaths:
            found.append(f"{self._deaths} cleaner threads died, the last by {self._last_death}")
        return found

    def _start_thread(self, number: int) -> None:
        worker = Worker(
            number,
            self.desk,
            self._loop,
            fs=self._fs,
            clock_ms=self._clock.now_ms,
            random_below=self._random_below,
            charge=self._charge,
            stopping=self._stopping,
        )
        thread = threading.Thread(
            target=self._run, args=(worker,), name=f"cleaner-{number}", daemon=True
        )
        self._workers[number] = worker, thread
        thread.start()

    def _charge(self, size_bytes: int) -> float:
        limit = self._config().log_cleaner_io_max_bytes_per_second
        return self._throttle.charge(size_bytes, max(limit, _RATE_MIN))

    def _run(self, worker: Worker) -> None:
        """Be a thread: whatever ends it is told to the loop."""
        error: BaseException | None = None
        try:
            worker.run()
        except BaseException as caught:  # The root of a thread.
            error = caught
        try:
            self._loop.call_soon_threadsafe(self._ended, worker, error)
        except RuntimeError:
            logger.debug("the event loop ended before cleaner thread %d", worker.number)

    def _ended(self, worker: Worker, error: BaseException | None) -> None:
        """Forget a thread; start another when it should not have ended."""
        del self._workers[worker.number]
        if worker.running is not None:
            self.desk.progress.end(worker.running)
        if self._stopping.is_set():
            return
        if error is None:
            self.reconfigure()  # It left as one too many; the settings may have changed since.
            return
        self._deaths += 1
        self._last_death = f"{type(error).__name__}: {error}"
        logger.error("cleaner thread %d died, starting another", worker.number, exc_info=error)
        delay_s = min(_RESTART_MIN_S * 2 ** (self._deaths - 1), _RESTART_MAX_S)
        self._loop.call_later(delay_s, self._restart)

    def _restart(self) -> None:
        if not self._stopping.is_set():
            self.reconfigure()
