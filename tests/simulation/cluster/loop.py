"""An event loop in virtual time, which runs all processes of a cluster one step after the other.

A callback belongs to the process in whose context it was scheduled. So a process can be killed at
any step, or stand still for a while, with its threads: work for executors runs on the loop, too,
after a delay that the seed decides.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Any
from weakref import WeakKeyDictionary

# Virtual time begins here: code that takes 0 for "never" must not meet it.
_BEGIN_S = 1_000.0
# The mean time that work in a thread takes; a seed draws one of them.
_EXECUTOR_DELAYS_S = (0.001, 0.02)
# Two callbacks of one line never have the same time, so that they keep their order.
_TICK_S = 1e-7
_NS_PER_S = 1_000_000_000


class Process:
    """One life of a process."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port
        self.is_dead = False
        self.is_paused = False
        self.backlog: deque[asyncio.Handle] = deque()

    def context(self) -> Context:
        """Return a context whose callbacks belong to this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context


PROCESS: ContextVar[Process] = ContextVar("process")


class Stuck(Exception):
    """Nothing is scheduled: the test would wait forever."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Time passes only when all callbacks that are due have run."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._now_s = _BEGIN_S
        self._source = random.Random(seed)
        self._executor_delay_s = self._source.choice(_EXECUTOR_DELAYS_S)
        self._busy_until_s: WeakKeyDictionary[Executor, float] = WeakKeyDictionary()
        # Returns a longer delay of an executor, or None.
        self.delay_of: Callable[[ThreadPoolExecutor], float | None] = lambda executor: None
        self.steps = 0
        # The clients and the test itself, which live as long as the loop.
        self.clients = Process("clients", 0)
        self.current = self.clients
        # Times, numbers in order, and handles: these compare faster than asyncio's handles.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        # Handles of dead processes: their coroutines must not be closed, as that runs code.
        self._dead: list[asyncio.Handle] = []

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now_s

    def time_ns(self) -> int:
        """Return the virtual time in nanoseconds."""
        return int(self._now_s * _NS_PER_S)

    def resume(self, process: Process) -> None:
        """Let a process that stood still continue; its timers are late."""
        process.is_paused = False
        self._ready.extend(process.backlog)
        process.backlog.clear()

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        """Run a callback in its turn, as one of a process."""
        if self._closed:
            self._check_closed()  # type: ignore[attr-defined]
        handle = asyncio.Handle(callback, args, self, self._owned(context))
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Run a callback after a time, as one of a process."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        """Run a callback at a time, as one of a process."""
        if self._closed:
            self._check_closed()  # type: ignore[attr-defined]
        handle = asyncio.TimerHandle(when, callback, args, self, self._owned(context))
        heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        """Begin a task, as one of a process."""
        return super().create_task(coro, name=name, context=self._owned(context))

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run a function on the loop, later; those of one thread run in their order."""
        answered = self.create_future()
        delay_s = None
        begin_s = self._now_s
        if isinstance(executor, ThreadPoolExecutor):
            delay_s = self.delay_of(executor)
            if executor._max_workers == 1:
                begin_s = max(begin_s, self._busy_until_s.get(executor, 0.0))
        if delay_s is None:
            delay_s = self._source.expovariate(1 / self._executor_delay_s)
        run_s = begin_s + self._source.random() * delay_s + _TICK_S
        end_s = run_s + delay_s + _TICK_S
        if executor is not None:
            self._busy_until_s[executor] = end_s

        def run() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                self.call_at(end_s, _settle, answered, None, error)
            else:
                self.call_at(end_s, _settle, answered, result, None)

        self.call_at(run_s, run)
        return answered

    def end_threads(self) -> None:
        """There are none: executors call functions in the loop."""

    # --- the parts that a loop of the operating system has -------------------------------------

    def _run_once(self) -> None:
        timers, ready = self._timers, self._ready
        while timers and timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heappop(timers)
        if not ready:
            if not timers:
                raise Stuck
            self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= self._now_s:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle: asyncio.Handle = ready.popleft()
            if not handle._cancelled:
                self._run_one(handle)

    def _run_one(self, handle: asyncio.Handle) -> None:
        process: Process = handle._context[PROCESS]  # type: ignore[attr-defined]
        if process.is_dead:
            self._dead.append(handle)
        elif process.is_paused:
            process.backlog.append(handle)
        else:
            self.steps += 1
            self.current = process
            handle._run()
            self.current = self.clients

    def _owned(self, context: Context | None) -> Context:
        """Return a context that names a process: in a greenlet of its own, code has none."""
        if context is None:
            context = copy_context()
        if PROCESS not in context:
            context.run(PROCESS.set, self.current)
        return context

    def close(self) -> None:
        """End; nothing is scheduled any more."""
        super().close()
        self._timers.clear()

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nothing waits in a system call."""


def _settle(answered: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answered.done():
        return
    if error is None:
        answered.set_result(result)
    else:
        answered.set_exception(error)
