"""A connection to another broker: requests on it overlap, and are answered in their order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.members import Endpoint
from odradek.broker.peers.errors import PeerRefuses
from odradek.broker.peers.reasons import refusal_of
from odradek.protocol.compiler import decode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.frames import SIZE, encode_request, read_response_header

T = TypeVar("T")

# No answer between brokers is larger; a longer one is not a broker's.
_ANSWER_BYTES_MAX = 64 << 20
# The part of a login's lifetime after which requests go over another connection (KIP-368).
_LIFETIME_SHARE = 0.85

LogIn = Callable[["Connection"], Awaitable[int]]
"""Logs in over a connection; returns the lifetime of the login in ms, 0 for one without end."""


class Connection:
    """A connection to one broker."""

    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        context: ssl.SSLContext | None,
        log_in: LogIn | None,
    ) -> None:
        """Begin to connect, by TLS with a context, then to log in."""
        self.endpoint, self._client_id = endpoint, client_id
        self._loop = asyncio.get_running_loop()
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = itertools.count()
        self._awaited: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._reading: asyncio.Task[None] | None = None
        # Why it is closed; None while it is not.
        self._error: OSError | PeerRefuses | None = None
        self._ends_at_s = math.inf
        self._is_retired = False
        # Done once requests may be sent; it has the error if that failed.
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._opening = start_task("connect to another broker", self._open(context, log_in))

    async def _open(self, context: ssl.SSLContext | None, log_in: LogIn | None) -> None:
        try:
            reader, self._writer = await asyncio.open_connection(
                self.endpoint.host, self.endpoint.port, ssl=context
            )
            self._reading = start_task("read from another broker", self._read(reader))
            if log_in is not None:
                began_s = self._loop.time()  # the other one counts from a later moment
                lifetime_ms = await log_in(self)
                if lifetime_ms > 0:
                    self._ends_at_s = began_s + _LIFETIME_SHARE * lifetime_ms / 1000
            self._opened.set_result(None)
        except (OSError, PeerRefuses) as error:
            self.close(error)

    @property
    def is_usable(self) -> bool:
        """Whether more requests may be sent: it is not closed, and its login lasts."""
        return self._error is None and self._loop.time() < self._ends_at_s

    async def ask(self, request: Any, version: int, response: type[T]) -> T:
        """Send a request once the connection is open; return its answer.

        Raises OSError or PeerRefuses.
        """
        await asyncio.shield(self._opened)  # others may wait for it, too
        return await self.exchange(request, version, response)

    async def exchange(self, request: Any, version: int, response: type[T]) -> T:
        """Send a request at once; return its answer. Raises OSError or PeerRefuses."""
        if self._error is not None:
            raise self._error
        assert self._writer is not None, "it is open"
        number = next(self._numbers) & 0x7FFF_FFFF
        answered: asyncio.Future[bytes] = self._loop.create_future()
        self._awaited.append((number, answered))
        # Else its end is about to be read, and is the answer. A transport of uvloop that is closed
        # refuses to write, with a RuntimeError.
        if not self._writer.transport.is_closing():
            self._writer.write(encode_request(request, version, number, self._client_id))
        frame = await answered
        try:
            _, position = read_response_header(memoryview(frame), response, version)
            return decode(response, version, frame[position:])
        except ProtocolError as error:
            raise ConnectionError(f"a malformed answer: {error}") from error

    def retire(self) -> None:
        """Close the connection once the requests on it are answered."""
        self._is_retired = True
        if not self._awaited:
            self.close()

    def close(self, error: OSError | PeerRefuses | None = None) -> None:
        """Close the connection; the requests that are not answered fail."""
        error = error or ConnectionError("the connection was closed")
        self._end(error)
        self._opening.cancel()
        if not self._opened.done():
            self._opened.set_exception(self._explained(error))
            self._opened.exception()  # perhaps nobody waits for it
        if self._reading is not None:
            self._reading.cancel()

    def _end(self, error: OSError | PeerRefuses) -> None:
        """Send nothing more. A login goes on, since its last answer may not be read yet."""
        if self._error is not None:
            return
        self._error = self._explained(error)
        if self._writer is not None:
            with contextlib.suppress(OSError):
                self._writer.close()
        while self._awaited:
            _, answered = self._awaited.popleft()
            if not answered.done():
                answered.set_exception(self._error)

    def _explained(self, error: OSError | PeerRefuses) -> OSError | PeerRefuses:
        """Return the refusal that an error is, with the error as its cause; else the error."""
        refusal = refusal_of(error, self.endpoint)
        if refusal is None:
            return error
        refusal.__cause__ = error
        return refusal

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while not self._is_retired or self._awaited:
                (size_bytes,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                if not SIZE.size <= size_bytes <= _ANSWER_BYTES_MAX:
                    raise ConnectionError(f"an answer of {size_bytes} bytes")
                frame = await reader.readexactly(size_bytes)
                number, answered = self._awaited.popleft()
                if SIZE.unpack_from(frame) != (number,):
                    raise ConnectionError("an answer to another request")
                if not answered.done():
                    answered.set_result(frame)
            self.close()
        except (OSError, EOFError, IndexError) as error:
            self._end(error if isinstance(error, OSError) else ConnectionError("it was closed"))
