"""Requests that take long run in slices of time, one slice in each turn of the event loop.

    request  --begin-->  first slice  --ends-->  its answer, at once
                |             |
                |             +--does not--> standing: one slice of one of them in each turn
                +--is large, and too many stand--> waiting, not decoded yet

So other clients wait for one slice at most, and only a few large requests are decoded in memory at
a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from greenlet import GreenletExit

from odradek.broker.loop.garbage import Uncollected
from odradek.protocol.pacing import Worker

T = TypeVar("T")

SLICE_S = 0.005
# The most large requests that may be decoded at a time.
STANDING_MAX = 4
# The most idle workers that are kept, since each has a stack; more are created when needed.
_IDLE_MAX = 8


class Work(Protocol):
    """Work that is done in slices."""

    def step(self) -> Any:
        """Do the work; its loops are paced."""

    def end(self, outcome: Any) -> None:
        """Take the result of `step`, outside of any slice."""

    def pause(self) -> None:
        """Note that the work stands still."""

    def resume(self) -> None:
        """Note that the work continues."""


class Slices:
    """Shares the event loop's time between requests; the event loop owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: list[Worker] = []
        self._standing: deque[tuple[Worker, Work]] = deque()
        self._waiting: deque[Work] = deque()
        self._is_scheduled = False
        self._is_waiting_next = False
        # While requests stand still, their objects are not searched for garbage.
        self._quiet = Uncollected(loop)

    @property
    def standing_count(self) -> int:
        """The number of requests that have begun and stand still."""
        return len(self._standing)

    def run(self, work: Work, *, is_large: bool = False) -> bool:
        """Begin some work; return whether one slice was enough, so that it has ended.

        Large work waits for its turn while too much is under way.
        """
        if is_large and (self._waiting or len(self._standing) >= STANDING_MAX):
            self._waiting.append(work)
            return False
        if not is_large:
            return self._begin(work)
        self._quiet.begin()
        is_over = self._begin(work)
        if not self._standing:
            self._quiet.end()
        return is_over

    def close(self) -> None:
        """Abandon all work where it stands, and all work that waits."""
        for worker in (*self._idle, *(worker for worker, _ in self._standing)):
            worker.give_up()
        self._idle.clear()
        self._standing.clear()
        self._waiting.clear()
        self._quiet.close()

    def _begin(self, work: Work) -> bool:
        worker = self._idle.pop() if self._idle else Worker()
        if worker.begin(work.step, SLICE_S):
            self._end(worker, work)
            return True
        work.pause()
        self._standing.append((worker, work))
        self._quiet.begin()
        self._schedule()
        return False

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Run one slice: of standing work, or every other time of waiting work."""
        self._is_scheduled = False
        if not (self._standing or self._waiting):
            return
        has_room = self._waiting and len(self._standing) < STANDING_MAX
        if has_room and (self._is_waiting_next or not self._standing):
            self._is_waiting_next = False
            self._begin(self._waiting.popleft())
        else:
            self._is_waiting_next = True
            worker, work = self._standing.popleft()
            work.resume()
            if worker.go_on(SLICE_S):
                self._end(worker, work)
            else:
                work.pause()
                self._standing.append((worker, work))
        if self._standing or self._waiting:
            self._quiet.look()
            self._schedule()
        else:
            self._quiet.end()

    def _end(self, worker: Worker, work: Work) -> None:
        outcome = worker.take()
        if len(self._idle) < _IDLE_MAX:
            self._idle.append(worker)
        else:
            worker.give_up()
        work.end(outcome)


def _nothing() -> None:
    """Do nothing."""


class Sliced(Generic[T]):
    """An answer that runs each of its steps in slices.

    A step goes from one await to the next. A cancellation that comes while a step stands still is
    raised at the step's end.
    """

    __slots__ = ("_answer", "_pause", "_resume", "_slices")

    def __init__(
        self,
        answer: Awaitable[T],
        slices: Slices,
        pause: Callable[[], None] = _nothing,
        resume: Callable[[], None] = _nothing,
    ) -> None:
        """`pause` and `resume` are called when a step stands still and when it continues."""
        self._answer, self._slices = answer, slices
        self._pause, self._resume = pause, resume

    def __await__(self) -> Generator[Any, Any, T]:
        """Run step by step."""
        steps = self._answer.__await__()
        thrown: BaseException | None = None
        while True:
            function = partial(next, steps) if thrown is None else partial(steps.throw, thrown)
            thrown = None
            step = _Step(function, self._pause, self._resume)
            del function  # it may refer to an error, whose traceback refers to this frame
            if not self._slices.run(step):
                thrown = yield from step.wait()
            awaited = step.take()
            if step.is_last:
                result: T = awaited
                return result
            if thrown is None:
                try:
                    yield awaited
                except BaseException as error:  # thrown into the answer's next step
                    thrown = error


class _Step:
    """One step of an answer."""

    def __init__(
        self,
        function: Callable[[], Any],
        pause: Callable[[], None],
        resume: Callable[[], None],
    ) -> None:
        self._function = function
        self.pause, self.resume = pause, resume
        self._is_over = False
        # Whether the answer has ended.
        self.is_last = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._ended: asyncio.Future[None] | None = None

    def step(self) -> None:
        """Run the step."""
        function, self._function = self._function, _nothing
        try:
            self._result = function()
        except StopIteration as stop:
            # Only the value is kept: the exception would refer to this frame, and be garbage.
            self._result, self.is_last = stop.value, True
        except GreenletExit:  # given up where it stood
            self._error = asyncio.CancelledError()
            self.end(None)
            raise
        except BaseException as error:  # raised again by take()
            self._error = error
        finally:
            del function

    def end(self, outcome: object) -> None:
        """Let the answer continue."""
        self._is_over = True
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def wait(self) -> Generator[Any, Any, BaseException | None]:
        """Wait for the end of the step; return an exception that was thrown in meanwhile."""
        thrown: BaseException | None = None
        loop = asyncio.get_running_loop()
        while not self._is_over:
            self._ended = loop.create_future()
            try:
                yield from self._ended
            except BaseException as error:  # thrown into the answer once the step is over
                thrown = error
        return thrown

    def take(self) -> Any:
        """Return the future that the answer awaits, or its result at the end; raises its error."""
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame
