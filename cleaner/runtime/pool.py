"""The broker's interface to the cleaner: starts and stops its threads, reports their state.

Compaction runs in `log.cleaner.threads` threads; retention and the timely rolling of segments
run on the event loop. They share this module, and none waits for another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Protocol

from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.passes.throttle import Throttle
from odradek.cleaner.rules.facts import active_segment, note_state
from odradek.cleaner.rules.quarantine import Quarantined
from odradek.cleaner.rules.why import Threads
from odradek.cleaner.runtime.asked import Outcome, Status
from odradek.cleaner.runtime.deaths import Deaths
from odradek.cleaner.runtime.deleter import Deleter
from odradek.cleaner.runtime.dry_run import DryRuns
from odradek.cleaner.runtime.history import HistoryStore
from odradek.cleaner.runtime.resources import Resources
from odradek.cleaner.runtime.roller import Roller
from odradek.cleaner.runtime.scheduler import Choice, Logs, Scheduler
from odradek.cleaner.runtime.survey import Noted
from odradek.cleaner.runtime.worker import Worker
from odradek.config.broker import BrokerConfig
from odradek.dataclass import dataclass
from odradek.storage.checkpoints import TopicPartition
from odradek.storage.files import FileSystem
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

_RATE_MIN = 1.0  # a limit of 0 would stop the cleaner without any message
_STOP_S = 10.0
_SWITCHED_OFF = "the cleaner is off: set log.cleaner.enable=true and log.cleaner.threads above 0"


class Clock(Protocol):
    """A source of the current time."""

    def now_ms(self) -> int:
        """Return the wall clock's time in milliseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """The state of the cleaner, for metrics, /health and operators."""

    threads_wanted: int
    threads_alive: int
    threads_died: int
    last_death: str | None
    running: tuple[TopicPartition, ...]
    quarantined: tuple[Quarantined, ...]
    last_choice: Choice
    results_by_thread: tuple[CleanResult, ...]
    last_results: tuple[CleanResult, ...]  # one for each partition that was cleaned


class CleanerPool:
    """The cleaner's threads and its retention task; owned by the event loop."""

    def __init__(
        self,
        logs: Logs,
        config: Callable[[], BrokerConfig],
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        fs: FileSystem,
        on_thread: Callable[[], None] = lambda: None,
        load_kernels: Callable[[], None] = lambda: None,
        process: int | None = None,
    ) -> None:
        """`config` returns the settings in force.

        `process` is the number of one of several processes that share the log directories.
        `on_thread` is called in each thread that starts, `load_kernels` in each before it cleans.
        """
        self._logs = logs
        self._config, self._loop, self._clock, self._fs = config, loop, clock, fs
        self._on_thread, self._process = on_thread, process
        self._stopping = threading.Event()
        self._throttle = Throttle(time.monotonic)
        self.scheduler = Scheduler(logs, config, clock.now_ms)
        # Set each time a job has ended.
        self._job_ended = asyncio.Event()
        self.scheduler.progress.on_end = self._job_ended.set
        self.deleter = Deleter(logs, config, clock.now_ms)
        self.roller = Roller(logs, config, clock.now_ms, self._wake_threads)
        self._resources = Resources(
            fs, clock.now_ms, secrets.randbelow, self.charge, self._stopping, load_kernels
        )
        self.dry_runs = DryRuns(logs, self.scheduler, config, self._resources)
        # One thread, so that lines are written in the order in which runs end.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="cleaner-history")
        self._workers: dict[int, tuple[Worker, threading.Thread]] = {}
        self._settings = _cleaner_settings(config())
        self._deaths = Deaths()

    def start(self) -> None:
        """Start the threads and the tasks of the event loop; returns at once."""
        self.deleter.start(self._loop)
        self.scheduler.runs.keep(HistoryStore(self._fs, self._write, self._call, self._process))
        if self._config().log_cleaner_enable:
            self.roller.start(self._loop)
        self.reconfigure()

    async def stop(self) -> None:
        """Abort the cleanings in progress, and wait until all threads have ended.

        A thread that is still compiling kernels is left behind: it has nothing to save.
        """
        self._stopping.set()
        self.wake()
        self.scheduler.asked.close()
        await self.deleter.stop()
        await self.roller.stop()
        for _, thread in list(self._workers.values()):
            await self._loop.run_in_executor(None, thread.join, _STOP_S)
        await self._loop.run_in_executor(None, self.dry_runs.close, _STOP_S)
        await self._finish_writing()
        for running in self.scheduler.progress.running:  # jobs of threads that were left behind
            running.is_aborted = True

    async def _finish_writing(self) -> None:
        """Let the writer thread finish all its work, then end it.

        A history that is being read is written once the loop has its contents: the thread hands
        them to the loop before it runs, and so ends, a function that was submitted later.
        """
        await self._loop.run_in_executor(self._writer, _nothing)
        await self._loop.run_in_executor(None, self._writer.shutdown)

    def reconfigure(self) -> None:
        """Apply the settings: start threads, dismiss surplus ones, retry failed partitions."""
        settings = _cleaner_settings(self._config())
        if settings != self._settings:
            self._settings = settings
            self.scheduler.progress.retry_all(self._clock.now_ms())
        self._fill_up()
        wanted = self.threads_wanted
        for number, (worker, _) in self._workers.items():
            worker.is_dismissed = number >= wanted
        if not wanted:
            self.scheduler.asked.refuse_all(_SWITCHED_OFF)
        self.wake()

    @property
    def threads_wanted(self) -> int:
        """The number of threads that the settings ask for."""
        config = self._config()
        return config.log_cleaner_threads if config.log_cleaner_enable else 0

    def wake(self) -> None:
        """Make resting threads and tasks look for work now."""
        self._wake_threads()
        self.roller.wake()

    def abort(self, topic: str, partition: int) -> None:
        """Stop a cleaning in progress, if there is one."""
        self.scheduler.progress.abort(topic, partition)

    def pause(self, topic: str, partition: int) -> None:
        """Abort a partition's cleaning, and begin none until each pause() has had a resume()."""
        self.scheduler.progress.pause(topic, partition)

    async def pause_and_wait(self, topic: str, partition: int) -> None:
        """Do the same as `pause`, and return once no thread writes into the log's directory."""
        self.pause(topic, partition)
        await self._idle(topic, partition)

    async def lease(self, topic: str, partition: int, job: str) -> None:
        """Leave a partition to a job outside; return once no thread works on it."""
        self.scheduler.progress.lease(topic, partition, job)
        await self._idle(topic, partition)

    def end_lease(self, topic: str, partition: int) -> None:
        """Clean a partition here again."""
        self.scheduler.progress.end_lease(topic, partition)
        self.wake()

    def resume(self, topic: str, partition: int) -> None:
        """Undo one call of pause()."""
        self.scheduler.progress.resume(topic, partition)
        self.wake()

    def ask(self, log: Log, *, must_verify: bool = False) -> asyncio.Future[Outcome]:
        """Request the cleaning of a log before all others, however dirty it is; returns at once.

        With `must_verify` its output is proved, even without log.cleaner.verify.
        """
        answer: asyncio.Future[Outcome] = self._loop.create_future()
        if self._stopping.is_set() or not self.threads_wanted:
            answer.set_result(Outcome(log.topic, log.partition, Status.REFUSED, _SWITCHED_OFF))
            return answer

        def answered(outcome: Outcome) -> None:
            if not answer.done():  # the caller may have cancelled it
                answer.set_result(outcome)

        self.scheduler.ask(log, answered, must_verify=must_verify)
        self.wake()
        return answer

    def threads(self) -> Threads:
        """Return the numbers of wanted and of living threads."""
        alive = sum(thread.is_alive() for _, thread in self._workers.values())
        return Threads(self._config().log_cleaner_enable, self.threads_wanted, alive)

    def note(self, log: Log) -> Noted:
        """Note the state of a log and of its cleaning, so that a thread can assess it."""
        offsets = self._logs.directory_of(log)
        key = log.topic, log.partition
        return Noted(
            note_state(log),
            log.directory.parent,
            offsets.cleaner_offsets.get(key),
            self.scheduler.progress.standing(log),
            key in self.scheduler.asked,
            self.scheduler.progress.horizons.get(key),
            active_segment(log),
            self.threads(),
        )

    def status(self) -> PoolStatus:
        """Return the state of the cleaner."""
        return PoolStatus(
            threads_wanted=self.threads_wanted,
            threads_alive=self.threads().alive,
            threads_died=self._deaths.count,
            last_death=self._deaths.last,
            running=tuple(
                (one.job.topic, one.job.partition) for one in self.scheduler.progress.running
            ),
            quarantined=self.scheduler.progress.quarantined,
            last_choice=self.scheduler.last_choice,
            results_by_thread=tuple(self.scheduler.results_by_thread.values()),
            last_results=tuple(self.scheduler.runs.last_results()),
        )

    def problems(self) -> list[str]:
        """Return the problems that need an operator, a sentence each."""
        found = [one.sentence for one in self.scheduler.progress.quarantined]
        of_threads = self._deaths.problem(self._clock.now_ms())
        return [*found, of_threads] if of_threads else found

    async def _idle(self, topic: str, partition: int) -> None:
        while self.scheduler.progress.is_running(topic, partition):
            self._job_ended.clear()
            await self._job_ended.wait()

    def _wake_threads(self) -> None:
        for worker, _ in self._workers.values():
            worker.wake()

    def _fill_up(self) -> None:
        """Start the missing threads; surplus threads leave by themselves."""
        wanted = self.threads_wanted
        try:
            for number in range(wanted):
                if number not in self._workers:
                    self._start_thread(number)
        except (RuntimeError, MemoryError) as error:  # The system has no room for a thread.
            self._bury(error)
        else:
            self._deaths.replaced(self._clock.now_ms())

    def charge(self, size_bytes: int) -> float:
        """Account for bytes that are read or written; return the seconds to wait.

        Threads call it; all of them together stay below log.cleaner.io.max.bytes.per.second.
        """
        limit = self._config().log_cleaner_io_max_bytes_per_second
        return self._throttle.charge(size_bytes, max(limit, _RATE_MIN))

    def _start_thread(self, number: int) -> None:
        worker = Worker(number, self.scheduler, self._loop, self._resources)
        thread = threading.Thread(
            target=self._run, args=(worker,), name=f"cleaner-{number}", daemon=True
        )
        thread.start()
        self._workers[number] = worker, thread

    def _write(self, function: Callable[[], None]) -> None:
        """Run a function in the writer thread, if it still exists."""

        def write() -> None:
            try:
                function()
            except Exception:  # The root of a thread.
                logger.exception("failed to keep the history of cleanings")

        with contextlib.suppress(RuntimeError):
            self._writer.submit(write)

    def _call(self, function: Callable[[], None]) -> None:
        """Run a thread's function on the loop, if it still runs."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def _run(self, worker: Worker) -> None:
        """Run as a thread, and report its end, with the error if any, to the loop."""
        error: BaseException | None = None
        try:
            self._on_thread()
            worker.run()
        except BaseException as caught:  # The root of a thread.
            error = caught
        try:
            self._loop.call_soon_threadsafe(self._ended, worker, error)
        except RuntimeError:
            logger.debug("the event loop ended before cleaner thread %d", worker.number)

    def _ended(self, worker: Worker, error: BaseException | None) -> None:
        """Forget a thread; start another if it should not have ended."""
        del self._workers[worker.number]
        if worker.running is not None:
            if error is None:
                self.scheduler.progress.end(worker.running)
            else:  # The same log would kill the next thread.
                self.scheduler.fail(worker.running, error)
            cause = f"its thread died: {error}"
            self.scheduler.asked.ended(worker.running.key, Status.FAILED, cause)
        if self._stopping.is_set():
            return
        if error is None:
            self._fill_up()  # It was surplus; the settings may have changed since.
        else:
            self._bury(error)

    def _bury(self, error: BaseException) -> None:
        delay_s = self._deaths.add(error, self._clock.now_ms())
        logger.error("a cleaner thread died, starting another in_s=%.0f", delay_s, exc_info=error)
        self._loop.call_later(delay_s, self._restart)

    def _restart(self) -> None:
        if not self._stopping.is_set():
            self._fill_up()


def _nothing() -> None:
    """Do nothing; marks a place in the queue of functions."""


def _cleaner_settings(config: BrokerConfig) -> dict[str, object]:
    """Return the cleaner's part of the broker's settings."""
    prefixes = ("log_cleaner_", "odradek_cleaner_")
    return {name: value for name, value in asdict(config).items() if name.startswith(prefixes)}
