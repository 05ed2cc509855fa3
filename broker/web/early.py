"""Answers /health while the broker starts and while it stops, before and after the HTTP server.

    /health/live    200: the event loop answers, and no restart is needed
    anything else   503: the broker is starting, or stopping

The HTTP server begins after the Kafka listeners (server.py), and ends before the logs are closed.
A recovery may take minutes; without an answer, the process would seem to hang. So this module
speaks just enough HTTP by itself: it reads the head of a request, answers by its first line, and
closes the connection.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Sequence
from typing import cast

from odradek.broker.hosts.addresses import AddressError, listen
from odradek.broker.web.certificate import Certificate
from odradek.broker.web.headers import HEADERS

logger = logging.getLogger(__name__)

LIVE, READY, PROBLEMS = "/health/live", "/health/ready", "/health"

CONNECTIONS_MAX = 64
REQUEST_S = 5.0
_HEAD_BYTES_MAX = 8192
_BACKLOG = 100
_HEAD_END = b"\r\n\r\n"


class EarlyAnswers:
    """Listens at the addresses of the HTTP listener; the event loop owns it."""

    def __init__(
        self, sockets: Sequence[socket.socket], certificate: Certificate | None
    ) -> None:
        """Keep the addresses of bound sockets; with a `certificate`, connections use TLS."""
        # Duplicates: the addresses go to the HTTP server and back, while connections are queued.
        self._bound = [one.dup() for one in sockets]
        self._context = None if certificate is None else certificate.context
        self._servers: list[asyncio.Server] = []
        self._state = ""
        self._open: set[_Connection] = set()

    async def serve(self, state: str) -> None:
        """Answer that the broker is in a state, such as "starting". Raises AddressError."""
        self._state = state
        loop = asyncio.get_running_loop()
        for bound in self._bound:
            listen(bound, _BACKLOG)
            self._servers.append(
                await loop.create_server(
                    lambda: _Connection(self._state, self._open),
                    sock=bound.dup(),
                    ssl=self._context,
                    ssl_handshake_timeout=None if self._context is None else REQUEST_S,
                )
            )

    async def serve_again(self, state: str) -> None:
        """Answer again; a failure is logged, and does not disturb the broker."""
        try:
            await self.serve(state)
        except (AddressError, OSError) as error:
            logger.warning("could not answer over HTTP while %s: %s", state, error)

    def pause(self) -> None:
        """Stop answering; later connections wait in the queue for the next server."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    def close(self) -> None:
        """Close the addresses and all open connections."""
        self.pause()
        for bound in self._bound:
            bound.close()
        for connection in list(self._open):
            connection.end()


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, state: str, others: set[_Connection]) -> None:
        self._state, self._others = state, others
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(REQUEST_S, self.end)
        self._others.add(self)
        if len(self._others) > CONNECTIONS_MAX:
            self.end()

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._head += data
        if _HEAD_END in self._head:
            transport.write(_answer(self._head.partition(b"\r\n")[0], self._state))
            transport.close()
        elif len(self._head) > _HEAD_BYTES_MAX:
            self.end()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._others.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """Close the connection at once, without sending the rest."""
        if self._transport is not None:
            self._transport.abort()


def _answer(line: bytes, state: str) -> bytes:
    """Return the answer to a request's first line."""
    method, _, rest = line.partition(b" ")
    target = rest.partition(b" ")[0].partition(b"?")[0].decode("ascii", "replace")
    message = f"the broker is {state}: wait until {READY} answers 200"
    status, body = "503 Service Unavailable", dict[str, object](error=message)
    if target == LIVE:
        status, body = "200 OK", {"status": state}
    elif target in (READY, PROBLEMS):
        body = {"status": state, "problems": [message]}
    text = (json.dumps(body, indent=2) + "\n").encode()
    fields = {
        **HEADERS,
        "Cache-Control": "no-store",
        "Content-Type": "application/json; charset=utf-8",
        "Content-Length": str(len(text)),
        "Connection": "close",
    }
    if not status.startswith("200"):
        fields["Retry-After"] = "1"
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + (b"" if method == b"HEAD" else text)
