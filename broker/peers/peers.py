"""Requests to other brokers of the cluster, by Kafka's own protocol (KIP-890, WriteTxnMarkers).

One connection to each broker is kept; requests on it overlap, and are answered in their order. A
request that fails is not sent again here: its caller knows whether it may be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from typing import Any, TypeVar

from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.members import Brokers, Endpoint
from odradek.protocol.compiler import decode
from odradek.protocol.frames import SIZE, encode_request, read_response_header

T = TypeVar("T")

# A broker that answers nothing is given up after this time.
_TIMEOUT_S = 10.0
# No answer between brokers is larger; a longer one is not a broker's.
_ANSWER_BYTES_MAX = 64 << 20
_PLAINTEXT = "PLAINTEXT"


class PeerAway(Exception):
    """Another broker cannot be reached, or has not answered; the message says why."""


class Peers:
    """The connections to other brokers; the event loop owns it."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._connections: dict[int, _Connection] = {}
        self._client_id = f"broker-{brokers.own.node_id}"

    async def ask(self, node_id: int, request: Any, version: int, response: type[T]) -> T:
        """Send a request to a broker; return its answer. Raises PeerAway."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                connection = await self._connect(node_id)
                return await connection.ask(request, version, response)
        except (OSError, EOFError, TimeoutError) as error:
            self._drop(node_id)
            reason = str(error) or type(error).__name__
            raise PeerAway(f"broker {node_id} does not answer: {reason}") from error

    def close(self) -> None:
        """Close all connections."""
        for node_id in list(self._connections):
            self._drop(node_id)

    async def _connect(self, node_id: int) -> _Connection:
        endpoint = self._endpoint(node_id)
        known = self._connections.get(node_id)
        if known is None or known.endpoint != endpoint or known.is_closed:
            self._drop(node_id)
            known = self._connections[node_id] = _Connection(endpoint, self._client_id)
        await asyncio.shield(known.opened)  # others may wait for it, too
        return known

    def _endpoint(self, node_id: int) -> Endpoint:
        member = self._brokers.get(node_id)
        if member is None:
            raise PeerAway(f"broker {node_id} is not there")
        for one in member.endpoints:
            if one.protocol == _PLAINTEXT:
                return one
        raise PeerAway(f"broker {node_id} has no PLAINTEXT listener for other brokers")

    def _drop(self, node_id: int) -> None:
        known = self._connections.pop(node_id, None)
        if known is not None:
            known.close()


class _Connection:
    """A connection to one broker."""

    def __init__(self, endpoint: Endpoint, client_id: str) -> None:
        self.endpoint, self._client_id = endpoint, client_id
        self.is_closed = False
        self._writer: asyncio.StreamWriter | None = None
        self._numbers = itertools.count()
        self._awaited: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._reading: asyncio.Task[None] | None = None
        # Done once the connection is open; it has the error if that failed.
        self.opened = asyncio.ensure_future(self._open())

    async def _open(self) -> None:
        reader, self._writer = await asyncio.open_connection(
            self.endpoint.host, self.endpoint.port
        )
        self._reading = start_task("read from another broker", self._read(reader))

    async def ask(self, request: Any, version: int, response: type[T]) -> T:
        """Send a request; return its answer. Raises OSError or EOFError."""
        if self._writer is None or self.is_closed:
            raise ConnectionError("the connection is closed")
        number = next(self._numbers) & 0x7FFF_FFFF
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._awaited.append((number, answered))
        self._writer.write(encode_request(request, version, number, self._client_id))
        frame = await answered
        _, position = read_response_header(memoryview(frame), response, version)
        return decode(response, version, frame[position:])

    def close(self) -> None:
        """Close the connection; the requests that are not answered fail."""
        self.is_closed = True
        self.opened.cancel()
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()
        self._fail(ConnectionError("the connection was closed"))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                (size_bytes,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                if not SIZE.size <= size_bytes <= _ANSWER_BYTES_MAX:
                    raise ConnectionError(f"an answer of {size_bytes} bytes")
                frame = await reader.readexactly(size_bytes)
                number, answered = self._awaited.popleft()
                if SIZE.unpack_from(frame) != (number,):
                    raise ConnectionError("an answer to another request")
                if not answered.done():
                    answered.set_result(frame)
        except (OSError, EOFError, IndexError) as error:
            self.is_closed = True
            self._fail(error if isinstance(error, OSError) else ConnectionError("it was closed"))
            if self._writer is not None:
                with contextlib.suppress(OSError):
                    self._writer.close()

    def _fail(self, error: OSError) -> None:
        while self._awaited:
            _, answered = self._awaited.popleft()
            if not answered.done():
                answered.set_exception(error)
