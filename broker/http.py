"""The HTTP listener of a broker, from its address to its end.

    bind     the address is taken, before the data is touched
    answer   it answers that the broker is starting, by little code (web/early.py)
    listen   connections wait until the first of them has loaded the HTTP library, which serves the
             page, /api and /metrics: a broker that nobody asks over HTTP does without its 16 MB

Workers of one machine have one address. At their first start one of them answers that they start;
once all serve it opens the port, and the others follow. A worker that is started again opens it
once it serves.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from odradek.broker.hosts.addresses import bind
from odradek.broker.loop.tasks import start_task
from odradek.broker.network.exposure import warn_of_http
from odradek.broker.process.code_memory import give_code_back
from odradek.broker.web.admin_token import AdminToken, create_admin_token
from odradek.broker.web.certificate import Certificate, read_certificate
from odradek.broker.web.early import EarlyAnswers
from odradek.config.broker import BrokerConfig
from odradek.config.effective import resolve_apart
from odradek.config.http import HttpConfig

if TYPE_CHECKING:
    from odradek.broker.composition import Broker
    from odradek.broker.web.server import HttpServer
    from odradek.broker.web.united.port import SharedPort

logger = logging.getLogger(__name__)

_LOOK_S = 0.05


class Http:
    """Owned by the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shared: SharedPort | None = None if broker.role is None else broker.role.port
        self._certificate: Certificate | None = None
        self._loading: asyncio.Task[None] | None = None
        self.sockets: Sequence[socket.socket] = ()
        # Set before clients are accepted, if HTTP is served.
        self.token: AdminToken | None = None
        # None until the first connection.
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

    @property
    def url(self) -> str:
        """The address of the page, for a browser on this machine."""
        host, port = self.sockets[0].getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - none is bound
        scheme = "http" if self._certificate is None else "https"
        return f"{scheme}://[{host}]:{port}/" if ":" in host else f"{scheme}://{host}:{port}/"

    async def listen(self) -> None:
        """Let connections be served by the HTTP server from here on."""
        if not self.sockets:
            return
        broker, shared = self._broker, self._shared
        self.token = self._create_token() if shared is None else shared.token
        self._warn()
        if self._certificate is not None:
            following = start_task("follow the certificate", self._certificate.follow())
            broker.stopping.callback(following.cancel)
        broker.stopping.push_async_callback(self._answer_at_end)
        broker.stopping.push_async_callback(self._close)
        if shared is None:
            self._early.pause()
            self._wait_for_connections()
            return
        server = self._create_server()  # its library was loaded before the workers were forked
        await server.listen_privately(shared.paths[broker.node_id])
        self._loading = start_task("open the HTTP port", self._open(server, shared))

    def load(self) -> asyncio.Task[None]:
        """Begin to load the HTTP library, unless that was done; return the task that serves."""
        if self._loading is None:
            self._forget_connections()
            self._loading = start_task("serve HTTP", self._serve())
        return self._loading

    def _wait_for_connections(self) -> None:
        for one in self.sockets:
            self._broker.loop.add_reader(one, self.load)

    def _forget_connections(self) -> None:
        for one in self.sockets:
            self._broker.loop.remove_reader(one)

    async def _serve(self) -> None:
        module = "odradek.broker.web.server"
        try:
            # Kafka's clients are served meanwhile.
            await self._broker.loop.run_in_executor(None, import_module, module)
            await self._create_server().listen()
        except Exception:
            await self._early.serve_again("unable to serve HTTP, its log says why")
            raise
        await asyncio.to_thread(give_code_back)

    def _create_server(self) -> HttpServer:
        from odradek.broker.web.server import HttpServer

        assert self.token is not None
        self.server = HttpServer(
            self._broker, self._certificate, self.sockets, self.token, self._shared
        )
        return self.server

    def _create_token(self) -> AdminToken:
        broker = self._broker
        path, given = broker.directories[0].path, broker.config.odradek_admin_token
        return create_admin_token(broker.fs, path, given)

    def _warn(self) -> None:
        broker = self._broker
        warning = warn_of_http(
            [one.getsockname()[:2] for one in self.sockets],
            is_guarded=broker.configs.of(HttpConfig).guards_reading(
                broker.security.authorizer is not None
            ),
            is_secured=self._certificate is not None,
        )
        if warning:
            logger.warning("%s", warning)

    async def _open(self, server: HttpServer, shared: SharedPort) -> None:
        # A change in shared memory wakes nobody.
        while not shared.may_open():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        self._early.pause()
        await server.listen()
        shared.opened()

    async def _close(self) -> None:
        if self._loading is None:
            self._forget_connections()
            return
        self._loading.cancel()
        await asyncio.gather(self._loading, return_exceptions=True)
        if self.server is not None:
            await self.server.close()

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
