"""Accepts connections over HTTP; each takes a place before it sends anything.

With TLS it has a place during its handshake, too: silent clients count as well.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

from odradek.broker.hosts.addresses import listen, plain_address
from odradek.broker.loop.tasks import start_task
from odradek.broker.security.tls.reasons import HandshakeFailed
from odradek.broker.web.first_bytes import look
from odradek.broker.web.limits import HANDSHAKE_S, LimitedProtocol, Limits

logger = logging.getLogger(__name__)

_BACKLOG = 100
# The delay after accept() has failed, for example by too many open files.
_RETRY_S = 0.5


class Acceptor:
    """Accepts clients as long as there are places; the event loop owns it."""

    def __init__(self, limits: Limits, context: ssl.SSLContext | None) -> None:
        """Begin. With a `context`, connections use TLS."""
        self._limits, self._context = limits, context
        self._loop = asyncio.get_running_loop()
        self._bound: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, bound: socket.socket) -> None:
        """Begin to accept on a bound socket, which close() closes."""
        listen(bound, _BACKLOG)
        self._bound.append(bound)
        self._keep(start_task("accept over HTTP", self._accept(bound)))

    async def close(self) -> None:
        """Stop accepting, and abort the handshakes under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for bound in self._bound:
            bound.close()

    async def _accept(self, bound: socket.socket) -> None:
        while True:
            try:
                client, name = await self._loop.sock_accept(bound)
            except OSError as error:
                logger.error("could not accept a connection over HTTP: %s", error)
                await asyncio.sleep(_RETRY_S)
                continue
            one = self._limits.admit(plain_address(str(name[0])))
            if one is None:
                client.close()
            else:
                self._keep(start_task("begin a connection over HTTP", self._begin(client, one)))

    async def _begin(self, client: socket.socket, one: LimitedProtocol) -> None:
        """Serve a connection, after its handshake with TLS."""
        is_begun = False
        try:
            if self._context is not None:
                async with asyncio.timeout(HANDSHAKE_S):
                    await look(client)
            await self._loop.connect_accepted_socket(
                lambda: one,
                client,
                ssl=self._context,
                ssl_handshake_timeout=None if self._context is None else HANDSHAKE_S,
            )
            is_begun = True
        except (OSError, HandshakeFailed) as error:  # TimeoutError and SSLError are OSErrors
            logger.debug("lost a new connection over HTTP: %s", error)
        finally:
            if not is_begun:
                self._limits.leave(one)
                client.close()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
