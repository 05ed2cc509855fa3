"""Ways between processes that lose, delay and cut off what passes through them.

Each connection to the way's port is continued to its target. A way that is *cut* still takes
connections, as a network does that loses packets: nothing passes, in one direction or in both,
until it heals. Then what was held back goes on, as TCP would send it again, or all connections
are reset, so that answers are lost for good. A way with HTTP may refuse a share of the requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.siege.refusals import Exchange, Refusals

_PIECE_BYTES = 1 << 16
REQUESTS, ANSWERS = "requests", "answers"


@dataclass
class _Direction:
    """One direction of a way: bytes pass while it is open, late while it is not quick."""

    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    is_quick: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0

    def heal(self) -> None:
        """Let all pass."""
        self.is_open.set()
        self.is_quick.set()

    async def delay(self) -> None:
        """Wait as long as the next piece has to."""
        if not self.is_quick.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.is_quick.wait(), self.delay_s)
        await self.is_open.wait()


class Way:
    """A way to a port of this machine; its methods may be called by any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: int) -> None:
        self.port = 0
        self.passed_bytes = 0
        self.target = target  # may change; connections that are there stay
        self._loop = loop
        self._directions = {REQUESTS: _Direction(), ANSWERS: _Direction()}
        for one in self._directions.values():
            one.heal()
        self._writers: set[StreamWriter] = set()
        self._refusals: Refusals | None = None

    async def open(self) -> None:
        """Listen on a free port."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    def cut(self, *directions: str) -> None:
        """Let nothing pass, in both directions if none is named."""
        for name in directions or self._directions:
            self._loop.call_soon_threadsafe(self._directions[name].is_open.clear)

    def slow(self, delay_s: float) -> None:
        """Let each piece of the answers wait."""
        answers = self._directions[ANSWERS]
        answers.delay_s = delay_s
        self._loop.call_soon_threadsafe(answers.is_quick.clear)

    def refuse(self, share: float, chance: random.Random) -> None:
        """Let a share of the requests of HTTP fail by their status; reset all connections."""
        refusals = Refusals(share, chance)

        def begin() -> None:
            self._refusals = refusals
            self._abort()

        self._loop.call_soon_threadsafe(begin)

    def reset(self) -> None:
        """Reset all connections."""
        self._loop.call_soon_threadsafe(self._abort)

    def heal(self, *, is_reset: bool = False) -> None:
        """Let all pass again; with `is_reset` what was held back is lost."""
        self._loop.call_soon_threadsafe(self._open_again, is_reset)

    def _open_again(self, is_reset: bool) -> None:
        if is_reset:
            self._abort()
        for one in self._directions.values():
            one.heal()
        if self._refusals is not None:
            self._refusals.share = 0.0
            self._refusals = None

    def _abort(self) -> None:
        for writer in self._writers:
            _reset(writer)

    async def _connect(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._directions[REQUESTS].is_open.wait()
            there, onward = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:  # the target is down
            self._writers.discard(writer)
            _reset(writer)
            return
        self._writers.add(onward)
        requests, answers = self._directions[REQUESTS], self._directions[ANSWERS]
        if self._refusals is None:
            passing = self._pass(reader, onward, requests), self._pass(there, writer, answers)
        else:
            exchange = Exchange(self._refusals)
            passing = (
                exchange.pass_requests(reader, onward, writer, requests.delay),
                exchange.pass_answers(there, writer, answers.delay),
            )
        both = [asyncio.ensure_future(one) for one in passing]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            for end in (writer, onward):
                self._writers.discard(end)
                end.close()

    async def _pass(
        self, reader: StreamReader, writer: StreamWriter, direction: _Direction
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                await direction.delay()
                self.passed_bytes += len(piece)
                writer.write(piece)
                await writer.drain()


def _reset(writer: StreamWriter) -> None:
    """Close a connection as after a failure: its peer gets an error, not an end."""
    linger = struct.pack("ii", 1, 0)
    with contextlib.suppress(OSError):  # it is closed already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


class Ways:
    """Ways that share a thread with an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def to(self, target: int) -> Way:
        """Open a way to a port."""
        way = Way(self._loop, target)
        asyncio.run_coroutine_threadsafe(way.open(), self._loop).result()
        return way

    @contextlib.contextmanager
    def running(self) -> Iterator[Ways]:
        """Keep them open while the body runs."""
        self._thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _close(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
