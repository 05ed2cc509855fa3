"""The listening sockets: accepts connections, keeps count of them, closes them at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass

from broker.connection import Connection
from broker.dispatch import Dispatcher

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listener:
    """An address that is listened on, and the one that clients are told."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int


class Server:
    """All listeners and their connections; the event loop owns it."""

    def __init__(self, dispatcher: Dispatcher, *, backlog: int, connections_max: int) -> None:
        self._dispatcher = dispatcher
        self._backlog = backlog
        self._connections_max = connections_max
        self._servers: list[asyncio.Server] = []
        self.connections: set[Connection] = set()
        self.listeners: list[Listener] = []
        self._emptied: asyncio.Event | None = None

    async def listen(self, listener: Listener) -> Listener:
        """Accept connections on an address; return it with the port that the system chose.

        Raises OSError when the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        bound = listener

        def accept() -> Connection:
            connection = Connection(self._dispatcher, bound, self._forget)
            self.connections.add(connection)
            if len(self.connections) > self._connections_max:
                loop.call_soon(
                    connection.refuse, f"max.connections={self._connections_max} is reached"
                )
            return connection

        server = await loop.create_server(
            accept, listener.host or None, listener.port, backlog=self._backlog
        )
        port = server.sockets[0].getsockname()[1]
        bound = Listener(
            listener.name,
            listener.host,
            port,
            listener.advertised_host,
            listener.advertised_port or port,
        )
        self._servers.append(server)
        self.listeners.append(bound)
        logger.info("listening name=%s host=%s port=%d", bound.name, bound.host, port)
        return bound

    async def close(self, drain_s: float) -> None:
        """Stop accepting, give responses a moment to go out, and close what is left."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.close()
        if self.connections:
            self._emptied = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), drain_s)
        for connection in list(self.connections):
            connection.abort()

    def _forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self._emptied is not None and not self.connections:
            self._emptied.set()
