"""The HTTP listener of a broker, from its address to its end.

    bind     the address is taken, before the data is touched
    answer   it answers that the broker is starting, by little code (web/early.py)
    listen   the HTTP library is loaded, and serves the page, /api and /metrics

Workers of one machine have one address. At their first start one of them answers that they start;
once all serve it opens the port, and the others follow. A worker that is started again opens it
once it serves.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from odradek.broker.hosts.addresses import bind
from odradek.broker.loop.tasks import start_task
from odradek.broker.web.certificate import read_certificate
from odradek.broker.web.early import EarlyAnswers
from odradek.config.broker import BrokerConfig
from odradek.config.effective import resolve_apart
from odradek.config.http import HttpConfig

if TYPE_CHECKING:
    from odradek.broker.composition import Broker
    from odradek.broker.web.server import HttpServer
    from odradek.broker.web.united.port import SharedPort

_LOOK_S = 0.05


class Http:
    """Owned by the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shared: SharedPort | None = None if broker.role is None else broker.role.port
        self.sockets: Sequence[socket.socket] = ()
        self.server: HttpServer | None = None

    def __str__(self) -> str:
        """Return a text for the log that says where HTTP is served."""
        if not self.sockets:
            return "HTTP is not served, metrics.listener is empty"
        return f"HTTP is served at port {self.sockets[0].getsockname()[1]} (metrics.listener)"

    def bind(self, config: BrokerConfig) -> None:
        """Bind the address. Raises AddressError."""
        if self._shared is not None:
            self.sockets = self._shared.sockets
        elif self._broker.role is None and config.metrics_address:
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
            if self._shared is None or self._shared.answers_first:
                await self._early.serve("starting")

    async def listen(self) -> None:
        """Let the HTTP server answer from here on."""
        if not self.sockets:
            return
        broker, shared = self._broker, self._shared
        if shared is None:
            self._early.pause()
        # Loading the library takes as long as the rest of the start; clients are served meanwhile.
        await broker.loop.run_in_executor(None, import_module, "odradek.broker.web.server")
        from odradek.broker.web.server import HttpServer

        self.server = HttpServer(broker, self._certificate, self.sockets, shared)
        broker.stopping.push_async_callback(self._answer_at_end)
        broker.stopping.push_async_callback(self.server.close)
        if shared is None:
            await self.server.listen()
            return
        await self.server.listen_privately(shared.paths[broker.node_id])
        opening = start_task("open the HTTP port", self._open(self.server, shared))
        broker.stopping.callback(opening.cancel)

    async def _open(self, server: HttpServer, shared: SharedPort) -> None:
        # A change in shared memory wakes nobody.
        while not shared.may_open():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        self._early.pause()
        await server.listen()
        shared.opened()

    async def _answer_at_end(self) -> None:
        shared = self._shared
        if shared is not None:
            if not shared.all_stop():
                return  # other workers answer
            own = shared.paths[self._broker.node_id]
            own.unlink(missing_ok=True)
            with suppress(OSError):  # the last worker succeeds, if their supervisor was killed
                own.parent.rmdir()
        await self._early.serve_again("stopping")
