"""Bounds the number of long requests that run at a time, and of those that wait for a turn.

Threads share the interpreter, and each request that reads a log may hold tens of MiB: without a
bound, all connections could do so at once.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from aiohttp import web

from odradek.broker.web.requests import Problem
from odradek.cleaner.passes.throttle import Pace

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# The interval of checks whether a client has gone.
_GONE_CHECK_S = 0.5
# The longest time that a turn lasts while its answer is sent: the answer to a client that does not
# read stays in memory until the connection is reset (broker/web/limits.py), but other requests
# do not wait for it.
_SENDING_S = 5.0
_RETRY = {"Retry-After": "1"}


class Turn:
    """The turn of one request."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._is_over = False

    def end(self) -> None:
        """Give the turn to the next request that waits; do nothing if it is over."""
        if not self._is_over:
            self._is_over = True
            self._places.release()

    async def send(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        """Send an answer within the turn: if clients read, each turn has one answer in memory."""
        asyncio.get_running_loop().call_later(_SENDING_S, self.end)
        with suppress(ConnectionError):  # aiohttp gets it, too, and closes the connection
            await response.prepare(request)
            await response.write_eof()
        return response


class ConcurrencyLimiter:
    """Gives turns to one kind of request; the event loop owns it."""

    def __init__(self, what: str, running_max: int, waiting_max: int) -> None:
        """Begin. `what` the requests do, such as "look at logs", is part of a refusal."""
        self._what, self._waiting_max = what, waiting_max
        self._places = asyncio.Semaphore(running_max)
        self._waiting = 0
        self._threads = ThreadPoolExecutor(running_max, f"http {what}")

    @asynccontextmanager
    async def turn(self, request: web.Request) -> AsyncIterator[Turn]:
        """Wait for a turn. Raises Problem when too many wait, or the client has gone."""
        if self._places.locked() and self._waiting >= self._waiting_max:
            cause = f"{self._waiting} requests wait already for their turn to {self._what}"
            raise Problem(503, f"{cause}: try again later", _RETRY)
        self._waiting += 1
        try:
            await self._take_place(request)
        finally:
            self._waiting -= 1
        turn = Turn(self._places)
        try:
            yield turn
        finally:
            turn.end()

    def in_turn(self, handler: Handler) -> Handler:
        """Return a handler that waits for a turn, and keeps it until the answer is sent."""

        @functools.wraps(handler)
        async def handle(request: web.Request) -> web.StreamResponse:
            async with self.turn(request) as turn:
                return await turn.send(request, await handler(request))

        return handle

    async def run(self, request: web.Request, pace: Pace, work: Callable[[], T]) -> T:
        """Run work in a thread, within a turn; stop it by its pace when the client has gone."""
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        return await while_asked(request, pace, running)

    def close(self) -> None:
        """Start no more work; running work is stopped by its pace."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _take_place(self, request: web.Request) -> None:
        taking: asyncio.Future[bool] = asyncio.ensure_future(self._places.acquire())
        try:
            while not taking.done():
                await asyncio.wait([taking], timeout=_GONE_CHECK_S)
                if is_gone(request):
                    raise Problem(503, "the client has gone")
        except BaseException:
            await self._give_up(taking)
            raise

    async def _give_up(self, taking: asyncio.Future[bool]) -> None:
        taking.cancel()
        with suppress(asyncio.CancelledError):
            await taking
            self._places.release()


async def while_asked(request: web.Request, pace: Pace, work: Awaitable[T]) -> T:
    """Await work; stop it by its pace when the client has gone."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_GONE_CHECK_S)
            if is_gone(request):
                pace.stop()
    finally:
        pace.stop()
        if not task.done():  # the broker stops, and so does the thread
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return task.result()


def is_gone(request: web.Request) -> bool:
    """Return whether the client does not wait for the answer any more."""
    return request.transport is None or request.transport.is_closing()
