"""A simulated loop whose threads are greenlets: others run wherever one waits for something.

A thread belongs to a process, and stands still or ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from greenlet import GreenletExit, getcurrent, greenlet

from odradek.storage.objects.remote_files import Claim
from tests.simulation.cluster.loop import _TICK_S, _settle
from tests.simulation.cluster.network import Network

T = TypeVar("T")

_OTHER_THREAD = -1
# Threads that wait look so often.
_POLL_S, _REST_POLL_S = 0.005, 0.05


class SimulatedThread(greenlet):
    """A thread. While it has the loop do something, its code is the loop's."""

    is_on_loop = False


class ThreadedNetwork(Network):
    """A network whose executors have threads that may wait."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._lines: WeakKeyDictionary[Executor, deque[Callable[[], None]]] = WeakKeyDictionary()
        # Keeps threads of dead processes: one that is freed runs its last steps.
        self._threads: list[SimulatedThread] = []

    def start_thread(self, body: Callable[[], None]) -> None:
        """Run a function as a thread of the present process."""
        thread = SimulatedThread(body)
        self._threads.append(thread)
        self.call_soon(self._resume, thread)

    def end_threads(self) -> None:
        """End the threads that are left: nothing frees what a thread that waits refers to."""
        for thread in self._threads:
            thread.parent = getcurrent()
            with contextlib.suppress(BaseException):  # its last steps fail without a loop
                thread.throw(GreenletExit())
        self._threads.clear()

    def wait(self, seconds: float) -> None:
        """Let a thread wait; the loop goes on meanwhile."""
        thread = getcurrent()
        assert isinstance(thread, SimulatedThread), "the event loop waits"
        self.call_later(seconds + _TICK_S, self._resume, thread)
        assert thread.parent is not None
        thread.parent.switch()

    def wait_until(
        self, is_over: Callable[[], bool], seconds: float | None = None, poll_s: float = _POLL_S
    ) -> bool:
        """Let a thread wait until something is over, but not for longer than a time."""
        end_s = None if seconds is None else self.time() + seconds
        while not is_over():
            if end_s is not None and self.time() >= end_s:
                return False
            self.wait(poll_s)
        return True

    def on_loop(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Let the loop call a function for a thread, which waits for the result."""
        self.wait(0)
        thread = getcurrent()
        assert isinstance(thread, SimulatedThread)
        thread.is_on_loop = True
        try:
            return function(*args, **kwargs)
        finally:
            thread.is_on_loop = False

    def call_soon_threadsafe(
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """Run a callback in its turn, for a thread."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function as a thread; those of an executor with one thread in their order."""
        answered = self.create_future()
        delay_s = self.delay_of(executor) if isinstance(executor, ThreadPoolExecutor) else None
        if delay_s is None:
            delay_s = self._source.expovariate(1 / self._executor_delay_s)
        first_s, last_s = (self._source.random() * delay_s for _ in range(2))
        line: deque[Callable[[], None]] | None = None
        if isinstance(executor, ThreadPoolExecutor) and executor._max_workers == 1:
            line = self._lines.setdefault(executor, deque())

        def body() -> None:
            self.wait(first_s)
            result = failure = None
            try:
                result = func(*args)
            except GreenletExit:
                raise
            except BaseException as error:
                failure = error
            self.wait(last_s)
            if line is not None:
                line.popleft()
                if line:
                    self.start_thread(line[0])
            _settle(answered, result, failure)

        if line is not None:
            line.append(body)
        if line is None or len(line) == 1:
            self.start_thread(body)
        return answered

    def _resume(self, thread: SimulatedThread) -> None:
        thread.parent = getcurrent()
        thread.switch()
        if thread.dead:
            self._threads.remove(thread)

    # --- what threads use ----------------------------------------------------------------------

    def module(self) -> Any:
        """Return the parts of `threading` that tell threads from the loop, for a module."""
        return SimpleNamespace(
            get_ident=self._ident, RLock=threading.RLock, Semaphore=threading.Semaphore
        )

    def _ident(self) -> int:
        thread = getcurrent()
        is_other = isinstance(thread, SimulatedThread) and not thread.is_on_loop
        return _OTHER_THREAD if is_other else threading.get_ident()

    def run_threadsafe(
        self, work: Coroutine[Any, Any, T], _: asyncio.AbstractEventLoop
    ) -> SimpleNamespace:
        """See asyncio.run_coroutine_threadsafe."""
        task = self.create_task(work)

        def result() -> Any:
            self.wait_until(task.done)
            return task.result()

        return SimpleNamespace(result=result)

    def claim_result(self, claim: Claim) -> memoryview:
        """See Claim.result, which waits for another thread."""
        self.wait_until(claim.done)
        error = claim.exception(0)
        if error is not None:
            raise error
        found = claim._result  # type: ignore[attr-defined]
        assert isinstance(found, memoryview)
        return found


class SimulatedEvent:
    """An event of a thread; see threading.Event."""

    def __init__(self, loop: ThreadedNetwork) -> None:
        self._loop, self._is_set = loop, False

    def is_set(self) -> bool:
        """Return whether it was set."""
        return self._is_set

    def set(self) -> None:
        """End all waits."""
        self._is_set = True

    def clear(self) -> None:
        """Let the next wait last."""
        self._is_set = False

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, but not for longer than a time."""
        return self._loop.wait_until(self.is_set, seconds, _REST_POLL_S)
