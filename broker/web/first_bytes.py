"""Checks the client hello of a connection over HTTP before OpenSSL reads it from the socket.

The event loop does this TLS by itself, so the bytes stay in the socket. The reasons of a refusal
are in broker/security/tls/hello.py.
"""

from __future__ import annotations

import asyncio
import socket

from odradek.broker.security.tls.hello import FirstMessage
from odradek.broker.security.tls.reasons import HandshakeFailed

_PEEK_BYTES = 128 * 1024
# A hello that has come in part keeps the socket readable, so no event signals further bytes.
_AGAIN_S = 0.02


async def look(client: socket.socket) -> None:
    """Wait for a complete client hello, or the end. Raises HandshakeFailed and OSError."""
    first, taken = FirstMessage(), 0
    while True:
        await _readable(client)
        seen = client.recv(_PEEK_BYTES, socket.MSG_PEEK)
        if not seen:
            return
        try:
            if len(seen) > taken and first.take(memoryview(seen)[taken:]) is not None:
                return
        except HandshakeFailed:
            client.recv(_PEEK_BYTES)  # closing with bytes unread would reset the connection
            raise
        taken = len(seen)
        await asyncio.sleep(_AGAIN_S)


async def _readable(client: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def arrived() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(client, arrived)
    try:
        await ready
    finally:
        loop.remove_reader(client)
