"""The HTTP listener of a broker, from its address to its end.

    bind     the address is taken, before the data is touched
    answer   it answers that the broker is starting, by little code (web/early.py)
    listen   the HTTP library is loaded, and serves the page, /api and /metrics
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from odradek.broker.hosts.addresses import bind
from odradek.broker.web.certificate import read_certificate
from odradek.broker.web.early import EarlyAnswers
from odradek.config.broker import BrokerConfig
from odradek.config.effective import resolve_apart
from odradek.config.http import HttpConfig

if TYPE_CHECKING:
    from odradek.broker.composition import Broker
    from odradek.broker.web.server import HttpServer


class Http:
    """Owned by the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.sockets: Sequence[socket.socket] = ()
        self.server: HttpServer | None = None

    def __str__(self) -> str:
        """Return a text for the log that says where HTTP is served."""
        if not self.sockets:
            return "HTTP is not served, metrics.listener is empty"
        return f"HTTP is served at port {self.sockets[0].getsockname()[1]} (metrics.listener)"

    def bind(self, config: BrokerConfig) -> None:
        """Bind the address. Raises AddressError."""
        role = self._broker.role
        if role is not None:
            self.sockets = role.http_sockets if role.number == 1 else ()
        elif config.metrics_address:
            self.sockets = bind(*config.metrics_address)
        for one in self.sockets:
            self._broker.stopping.callback(one.close)

    async def answer(self) -> None:
        """Answer that the broker is starting, until there is an HTTP server.

        Raises ConfigError for a certificate that cannot be read, before the data is touched.
        """
        if self.sockets:
            broker = self._broker
            self._certificate = read_certificate(resolve_apart(HttpConfig, [broker.static]))
            self._early = EarlyAnswers(self.sockets, self._certificate)
            broker.stopping.callback(self._early.close)
            await self._early.serve("starting")

    async def listen(self) -> None:
        """Let the HTTP server answer from here on."""
        if not self.sockets:
            return
        broker = self._broker
        self._early.pause()
        # Loading the library takes as long as the rest of the start; clients are served meanwhile.
        await broker.loop.run_in_executor(None, import_module, "odradek.broker.web.server")
        from odradek.broker.web.server import HttpServer

        self.server = HttpServer(broker, self._certificate)
        broker.stopping.push_async_callback(self._early.serve_again, "stopping")
        broker.stopping.push_async_callback(self.server.close)
        await self.server.listen(self.sockets)
