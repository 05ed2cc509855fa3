"""A cleaner thread's loop: it asks for a log, cleans it, reports, rests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from odradek.cleaner.errors import CleaningAborted
from odradek.cleaner.passes.throttle import Pace
from odradek.cleaner.runtime.inspection import Inspection, LogSource, inspect_all
from odradek.cleaner.runtime.progress import CleanerOffsets, Progress, Running
from odradek.cleaner.runtime.resources import Resources
from odradek.dataclass import dataclass
from odradek.storage.errors import DiskFailure, StaleSegments, StorageError
from odradek.storage.exchange import Exchange, carry_out
from odradek.storage.log import Log
from odradek.storage.metering import metered
from odradek.storage.segment import Segment

if TYPE_CHECKING:
    from odradek.cleaner.passes.stats import CleanResult

P = ParamSpec("P")
T = TypeVar("T")

_ALIVE_CHECK_S = 1.0


@dataclass(frozen=True, slots=True)
class Rest:
    """The answer when there is nothing to clean: ask again after this time."""

    seconds: float


class Loop(Protocol):
    """The operations that a thread needs of the event loop."""

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> object:
        """Run a function on the loop, soon."""

    def is_closed(self) -> bool:
        """Return whether the loop will run nothing more."""


class WorkSource(LogSource, Protocol):
    """The source of a thread's work (the Scheduler). Every method runs on the event loop."""

    progress: Progress

    def take(self, thread: int, inspection: Inspection) -> Running | Rest | None:
        """Give a thread its next log, or a rest, or its dismissal (None)."""

    def propose(
        self,
        running: Running,
        old: Sequence[Segment],
        new: Sequence[Segment],
        *,
        is_stored: bool,
    ) -> Exchange:
        """Begin to exchange segments; raises StaleSegments when the log has changed."""

    def succeed(self, thread: int, running: Running, result: CleanResult) -> None:
        """Accept a finished cleaning."""

    def refused(self, log: Log, error: DiskFailure) -> None:
        """Note that the cleaner's checkpoint could not be stored."""

    def abandon(self, running: Running) -> None:
        """Take back a log whose cleaning was aborted or refused."""

    def fail(self, running: Running, error: Exception) -> None:
        """Take back a log whose cleaning failed."""


class Worker:
    """One cleaner thread.

    It asks the event loop for the filthiest log, indexes the log's dirty section, and writes
    segments without the records that later ones have made obsolete. It proposes these segments to
    the loop, which alone may change a log: if the log was truncated, trimmed or deleted meanwhile,
    the loop refuses, and the thread discards its work. The thread reads only data that is frozen
    or never changes: sealed segments, configurations, copies of counters.

    A failure of one log is reported and leaves the thread alive. After any other error the thread
    ends, and the pool starts another.
    """

    def __init__(
        self,
        number: int,
        scheduler: WorkSource,
        loop: Loop,
        resources: Resources,
    ) -> None:
        self.number = number
        self.running: Running | None = None
        # Set by the loop when the thread is surplus: it drops its cleaning, and ends.
        self.is_dismissed = False
        self._scheduler, self._loop, self._resources = scheduler, loop, resources
        self._stopping = resources.stopping
        self._awake = threading.Event()

    def wake(self) -> None:
        """End the thread's rest, if it rests."""
        self._awake.set()

    def run(self) -> None:
        """Clean logs until the pool stops or the thread is dismissed."""
        while not self._stopping.is_set():
            self._awake.clear()
            inspection = inspect_all(self._scheduler, self._ask, self._resources.clock_ms())
            order = self._ask(self._scheduler.take, self.number, inspection)
            for offsets, log in inspection.unsaved().items():
                self._save(offsets, log)
            if order is None:
                return
            if isinstance(order, Rest):
                if not self._stopping.is_set():
                    self._awake.wait(order.seconds)
                continue
            self.running = order
            self._clean(order)
            self.running = None

    def _clean(self, running: Running) -> None:
        resources = self._resources
        # Numba takes a while to load; it is not needed before there is something to clean.
        resources.load_kernels()
        from odradek.cleaner.passes.clean import clean

        pace = Pace(
            resources.charge, self._stopping, lambda: running.must_stop or self.is_dismissed
        )
        try:
            with metered() as meter:
                result = clean(
                    running.job,
                    fs=running.log.active.fs,
                    random_below=resources.random_below,
                    clock_ms=resources.clock_ms,
                    before_io=pace.before_io,
                    propose=partial(self._propose, running),
                    counters=running.counters,
                )
            if running.log.is_shared:
                result = replace(result, store=meter.use)
        except (CleaningAborted, StaleSegments):
            self._ask(self._scheduler.abandon, running)
        except Exception as error:  # The root of a cleaning: one log must not stop the others.
            if running.must_stop:  # Its files were removed while they were read.
                self._ask(self._scheduler.abandon, running)
            else:
                self._ask(self._scheduler.fail, running, error)
        else:
            self._ask(self._scheduler.progress.succeed, running, result)
            self._save(running.offsets, running.log)
            self._ask(self._scheduler.succeed, self.number, running, result)

    def _propose(
        self, running: Running, old: Sequence[Segment], new: Sequence[Segment]
    ) -> Callable[[], None] | None:
        """Exchange segments; of a shared log, return the function that ends it."""
        shared = running.log.uncommitted
        if shared is None:
            self._exchange(running, old, new, is_stored=False)
            return None
        pending = shared.begin_exchange(old, new)

        def complete() -> None:
            if running.must_stop:
                pending.discard()
                raise StaleSegments(f"{running.job.name}: its cleaning was aborted")
            give_up = pending.complete()
            try:
                self._exchange(running, old, new, is_stored=True)
            except StorageError as error:
                self._ask(give_up, error)
                raise

        return complete

    def _exchange(
        self,
        running: Running,
        old: Sequence[Segment],
        new: Sequence[Segment],
        *,
        is_stored: bool,
    ) -> None:
        exchange = self._ask(self._scheduler.propose, running, old, new, is_stored=is_stored)
        carry_out(
            exchange.sync,  # here: the loop does not wait for the disk
            step=partial(self._ask, exchange.step),
            undo=partial(self._ask, exchange.undo),
        )

    def _save(self, offsets: CleanerOffsets, log: Log) -> None:
        """Store the cleaner's checkpoint, which changed for a log; the loop does not wait."""
        taken = self._ask(offsets.take_cleaner_offsets)
        try:
            offsets.store(taken)
        except DiskFailure as error:  # the next checkpoint includes it
            self._ask(self._scheduler.refused, log, error)

    def _ask(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on the event loop; return its result or raise its error.

        Raises CleaningAborted when the loop has ended.
        """
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(function(*args, **kwargs))
            except BaseException as error:  # The thread handles it.
                future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError as error:  # The loop was closed.
            raise CleaningAborted("the event loop has ended") from error
        while True:
            try:
                return future.result(_ALIVE_CHECK_S)
            except TimeoutError:
                if future.done():  # The function itself has raised it.
                    raise
                if self._loop.is_closed():
                    raise CleaningAborted("the event loop has ended") from None
