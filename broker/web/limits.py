"""Bounds the time and bytes of an HTTP connection, and the number of connections.

    a request's head                arrives within 10 s of its first byte; for the first request,
                                    of the start of the connection
    a request                       has at most 1 MiB with its body, which is never used
    an answer                       makes progress within 30 s
    a connection                    is idle for at most 75 s (aiohttp closes it)

aiohttp parses and answers requests; this module stands between aiohttp and the socket.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable
from typing import cast

from odradek.broker.hosts.addresses import plain_address
from odradek.broker.loop.seldom import Seldom

logger = logging.getLogger(__name__)

HEAD_S = 10.0
STALL_S = 30.0
IDLE_S = 75.0
HANDSHAKE_S = 10.0
REQUEST_BYTES_MAX = 1 << 20
# A Kafka client's first request is small; it is ApiVersions (18), Metadata (3) or SaslHandshake
# (17): size i32, key i16, version i16 (protocol/frames.py).
_KAFKAS = re.compile(rb"\x00\x00..\x00[\x03\x11\x12]\x00", re.DOTALL)


class Limits:
    """Creates an asyncio protocol for each connection of a listener, and keeps the open ones."""

    def __init__(
        self,
        make: Callable[[Limits], asyncio.Protocol],
        loop: asyncio.AbstractEventLoop,
        connections_max: Callable[[], int],
        kafka_addresses: str,
    ) -> None:
        """Begin without connections; a Kafka client's log line names `kafka_addresses`."""
        self._make, self.loop, self._connections_max = make, loop, connections_max
        # The address of each connection; it takes its place before its handshake begins.
        self._open: dict[LimitedProtocol, str] = {}
        self._counts: Counter[str] = Counter()
        self._serving: dict[asyncio.BaseTransport, LimitedProtocol] = {}
        self._refused = Seldom(
            logger,
            loop.time,
            "refused connections over HTTP, odradek.http.connections.max allows no more",
        )
        self._kafka = Seldom(
            logger,
            loop.time,
            "a client of Kafka's protocol came to the HTTP listener, set its bootstrap.servers "
            f"to {kafka_addresses}",
        )
        self._malformed = Seldom(logger, loop.time, "refused bytes that are not an HTTP request")

    def admit(self, address: str) -> LimitedProtocol | None:
        """Return the protocol of a new connection from an address, None when there is no place."""
        limit = self._connections_max()
        if len(self._open) >= limit or self._counts[address] >= limit // 2:
            self._refused.note(address)
            return None
        one = LimitedProtocol(self, self._make(self))
        self._open[one] = address
        self._counts[address] += 1
        return one

    def leave(self, one: LimitedProtocol) -> None:
        """Free a connection's place, unless that has been done."""
        address = self._open.pop(one, None)
        if address is not None:
            self._counts -= Counter({address: 1})

    def serve(self, transport: asyncio.BaseTransport, one: LimitedProtocol) -> None:
        """Remember the transport of a connection's requests."""
        self._serving[transport] = one

    def forget(self, transport: asyncio.BaseTransport) -> None:
        """Forget a transport: no more requests come from it."""
        self._serving.pop(transport, None)

    def began(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the head of a request has arrived on a connection."""
        if transport in self._serving:
            self._serving[transport].began()

    def ended(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the request on a connection was answered."""
        if transport in self._serving:
            self._serving[transport].ended()

    def note_malformed(self, transport: asyncio.BaseTransport | None) -> None:
        """Log that a client sent bytes that are not an HTTP request; do not log the bytes."""
        one = self._serving.get(transport) if transport is not None else None
        address = address_of(transport) if transport is not None else ""
        if one is not None and one.is_kafkas:
            self._kafka.note(address)
        else:
            self._malformed.note(address)


class LimitedProtocol(asyncio.Protocol):
    """One connection, which is reset when it exceeds a limit."""

    def __init__(self, limits: Limits, inner: asyncio.Protocol) -> None:
        self._limits, self._inner = limits, inner
        self._transport: asyncio.Transport | None = None
        self._is_answering = False
        self._received_bytes = 0
        # Whether the first bytes look like Kafka's protocol.
        self.is_kafkas = False
        self._is_begun = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        # uvloop's transports do not inherit from asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self._limits.serve(transport, self)
        self._inner.connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to aiohttp; reset the connection if they are too many."""
        if self._transport is None:
            return
        if not self._is_begun:
            self._is_begun, self.is_kafkas = True, _KAFKAS.match(data) is not None
        self._received_bytes += len(data)
        if self._received_bytes > REQUEST_BYTES_MAX:
            self._reset("the request is too large")
            return
        if not self._is_answering:
            self._await_head()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass the end of the client's stream to aiohttp."""
        return self._inner.eof_received() if self._transport is not None else None

    def pause_writing(self) -> None:
        """Limit the time that a slow client may go without reading, from now on."""
        self._inner.pause_writing()
        if self._stall_timer is None:
            self._stall_timer = self._limits.loop.call_later(
                STALL_S, self._reset, "the answer was not read"
            )

    def resume_writing(self) -> None:
        """End the limit that pause_writing() began: the client reads again."""
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """Free the connection's place."""
        transport, self._transport = self._transport, None
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._limits.leave(self)
        if transport is not None:
            self._limits.forget(transport)
            self._inner.connection_lost(error)

    def began(self) -> None:
        """Note that a request's head has arrived."""
        self._is_answering, self._received_bytes = True, 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def ended(self) -> None:
        """Note that the request was answered."""
        self._is_answering, self._received_bytes = False, 0

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self._limits.loop.call_later(
                HEAD_S, self._reset, "the request did not arrive"
            )

    def _reset(self, reason: str) -> None:
        if self._transport is not None:
            logger.info(
                "reset a connection over HTTP, %s address=%s", reason, address_of(self._transport)
            )
            self._transport.abort()


def address_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of the client, "" when the socket does not know it any more."""
    peer = transport.get_extra_info("peername")
    return plain_address(str(peer[0])) if peer else ""
