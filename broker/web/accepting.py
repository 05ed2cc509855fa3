"""Accepts connections over HTTP, each of which has a place before it says anything.

With TLS it has one for its handshake already: who connects and is silent counts as well.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

from broker.hosts.addresses import listen, plain_address
from broker.loop.tasks import start_task
from broker.security.tls.reasons import HandshakeFailed
from broker.web.first_bytes import look
from broker.web.limits import HANDSHAKE_S, LimitedProtocol, Limits

logger = logging.getLogger(__name__)

_BACKLOG = 100
# After a failure to accept, such as too many open files.
_RETRY_S = 0.5


class Acceptor:
    """Lets clients in as long as there are places; the event loop owns it."""

    def __init__(self, limits: Limits, context: ssl.SSLContext | None) -> None:
        """A `context` is for connections over TLS."""
        self._limits, self._context = limits, context
        self._loop = asyncio.get_running_loop()
        self._bound: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, bound: socket.socket) -> None:
        """Begin to accept on a bound socket, which is closed in the end."""
        listen(bound, _BACKLOG)
        self._bound.append(bound)
        self._keep(start_task("accept over HTTP", self._accept(bound)))

    async def close(self) -> None:
        """Accept no more, and give up the handshakes that are under way."""
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
        """Serve a connection, once its handshake is done where it takes one."""
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
