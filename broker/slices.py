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
from typing import Any, Protocol

from protocol.pacing import Worker

SLICE_S = 0.005
# As many large requests as may be decoded at a time.
STANDING_MAX = 4
# Each has a stack: more than this many are made again when they are needed.
_IDLE_MAX = 8


class Work(Protocol):
    """What is done in slices."""

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

    @property
    def standing_count(self) -> int:
        """How many requests have begun and stand still."""
        return len(self._standing)

    def run(self, work: Work, *, is_large: bool = False) -> bool:
        """Do some work, and end it at once if a slice is enough; tell whether that was so.

        What is large waits its turn where others are under way.
        """
        if is_large and (self._waiting or len(self._standing) >= STANDING_MAX):
            self._waiting.append(work)
            return False
        return self._begin(work)

    def close(self) -> None:
        """End all where it stands; nothing is begun any more."""
        for worker in (*self._idle, *(worker for worker, _ in self._standing)):
            worker.give_up()
        self._idle.clear()
        self._standing.clear()
        self._waiting.clear()

    def _begin(self, work: Work) -> bool:
        worker = self._idle.pop() if self._idle else Worker()
        if worker.begin(work.step, SLICE_S):
            self._end(worker, work)
            return True
        work.pause()
        self._standing.append((worker, work))
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
            self._schedule()

    def _end(self, worker: Worker, work: Work) -> None:
        outcome = worker.take()
        if len(self._idle) < _IDLE_MAX:
            self._idle.append(worker)
        else:
            worker.give_up()
        work.end(outcome)
