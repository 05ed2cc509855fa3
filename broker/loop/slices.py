"""Requests that take long have the event loop for a slice of time in each of its turns.

    request  --begin-->  first slice  --ends-->  its answer, at once
                |             |
                |             +--goes on--> standing: one slice of one of them in each turn
                +--is large, and others stand--> waiting, not decoded yet

So other clients wait for a slice at most, and what large requests decode to is in memory for a
few of them at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from greenlet import GreenletExit

from broker.loop.garbage import Uncollected
from protocol.pacing import Worker

T = TypeVar("T")

SLICE_S = 0.005
# As many large requests as may be decoded at a time.
STANDING_MAX = 4
# Each has a stack: more than this many are made again when they are needed.
_IDLE_MAX = 8


class Work(Protocol):
    """Work that is done in slices."""

    def step(self) -> Any:
        """Do it; loops of it are paced."""

    def end(self, outcome: Any) -> None:
        """Take what `step` returned, outside of any slice."""

    def pause(self) -> None:
        """Note that the work stands still."""

    def resume(self) -> None:
        """Note that the work goes on."""


class Slices:
    """Shares the event loop's time between requests; the event loop owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: list[Worker] = []
        self._standing: deque[tuple[Worker, Work]] = deque()
        self._waiting: deque[Work] = deque()
        self._is_scheduled = False
        self._is_waiting_next = False
        # While requests stand still what they are made of is not taken for garbage.
        self._quiet = Uncollected()

    @property
    def standing_count(self) -> int:
        """How many requests have begun and stand still."""
        return len(self._standing)

    def run(self, work: Work, *, is_large: bool = False) -> bool:
        """Do some work, and end it at once if a slice is enough; return whether that was so.

        What is large waits its turn where others are under way.
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
        """End all where it stands; nothing is begun any more."""
        for worker in (*self._idle, *(worker for worker, _ in self._standing)):
            worker.give_up()
        self._idle.clear()
        self._standing.clear()
        self._waiting.clear()
        self._quiet.end()

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
        """Give one a slice: one that stands, or every other time one that waits."""
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
    """Take no note."""


class Sliced(Generic[T]):
    """An answer of which each step is done in slices.

    A step is from one of its awaits to the next. A cancellation that comes while a step stands
    still is thrown at the step's end.
    """

    __slots__ = ("_answer", "_pause", "_resume", "_slices")

    def __init__(
        self,
        answer: Awaitable[T],
        slices: Slices,
        pause: Callable[[], None] = _nothing,
        resume: Callable[[], None] = _nothing,
    ) -> None:
        """Have `pause` and `resume` called when a step stands still and goes on."""
        self._answer, self._slices = answer, slices
        self._pause, self._resume = pause, resume

    def __await__(self) -> Generator[Any, Any, T]:
        """Go on step by step."""
        steps = self._answer.__await__()
        thrown: BaseException | None = None
        while True:
            function = partial(next, steps) if thrown is None else partial(steps.throw, thrown)
            thrown = None
            step = _Step(function, self._pause, self._resume)
            if not self._slices.run(step):
                thrown = yield from step.wait()
            awaited = step.take()
            if step.is_last:
                result: T = awaited
                return result
            if thrown is None:
                try:
                    yield awaited
                except BaseException as error:  # handed on to where it is awaited
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
        # Whether the answer came to its end.
        self.is_last = False
        self._result: Any = None
        self._error: BaseException | None = None
        self._ended: asyncio.Future[None] | None = None

    def step(self) -> None:
        """Do it."""
        try:
            self._result = self._function()
        except StopIteration as stop:
            # Not kept itself: it would refer to this frame, and the result would be garbage.
            self._result, self.is_last = stop.value, True
        except GreenletExit:  # given up where it stood
            self._error = asyncio.CancelledError()
            self.end(None)
            raise
        except BaseException as error:  # handed on by take()
            self._error = error

    def end(self, outcome: object) -> None:
        """Let the answer go on."""
        self._is_over = True
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def wait(self) -> Generator[Any, Any, BaseException | None]:
        """Wait for the end; return what was thrown at the answer meanwhile."""
        thrown: BaseException | None = None
        loop = asyncio.get_running_loop()
        while not self._is_over:
            self._ended = loop.create_future()
            try:
                yield from self._ended
            except BaseException as error:  # handed on once the step is over
                thrown = error
        return thrown

    def take(self) -> Any:
        """Return what the answer awaits next, its result at its end; raises what it raised."""
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # which refers to this frame
