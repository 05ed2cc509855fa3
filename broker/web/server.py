"""The HTTP listener: the web page, /metrics for Prometheus, /health, and /api as JSON.

    /health/live    200 as long as the process serves; for liveness probes
    /health/ready   200 while clients are accepted, else 503; for readiness probes
    /health         the list of problems, 503 unless it is empty; for alerts and people

The first connection loads it (broker/http.py); early.py answers while the broker starts and stops.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from odradek.broker.loop.garbage import uncollected
from odradek.broker.observability.exposition.render import render
from odradek.broker.observability.exposition.snapshot import take_snapshot
from odradek.broker.web.accepting import Acceptor
from odradek.broker.web.access import Access
from odradek.broker.web.cleaner_routes import add_cleaner_routes
from odradek.broker.web.cluster import add_cluster_routes
from odradek.broker.web.cluster_moves import add_cluster_move_routes
from odradek.broker.web.concurrency import ConcurrencyLimiter
from odradek.broker.web.console.routes import add_console_routes
from odradek.broker.web.early import LIVE, PROBLEMS, READY
from odradek.broker.web.groups import add_group_routes
from odradek.broker.web.guard import Guard
from odradek.broker.web.headers import protect
from odradek.broker.web.limits import IDLE_S, REQUEST_BYTES_MAX, Limits
from odradek.broker.web.login_route import add_login_route
from odradek.broker.web.malformed import RequestHandler
from odradek.broker.web.objects import add_object_routes
from odradek.broker.web.origins import own_names
from odradek.broker.web.page import add_page
from odradek.broker.web.proofs import add_routes as add_proof_routes
from odradek.broker.web.records import add_record_routes
from odradek.broker.web.requests import Answer, answer
from odradek.broker.web.state import add_state_routes
from odradek.broker.web.topics import add_topic_routes
from odradek.config.http import HttpConfig

if TYPE_CHECKING:
    from odradek.broker.web.admin_token import AdminToken
    from odradek.broker.web.certificate import Certificate
    from odradek.broker.web.console.asking import ConsoleServices
    from odradek.broker.web.united.answering import UnitedAnswers
    from odradek.broker.web.united.port import SharedPort

# How long a stop waits for answers that are being sent.
_DRAIN_S = 1.0
# Requests that read logs: each holds a batch, which may decompress to 100 MiB.
_READS_MAX, _READS_WAITING_MAX = 2, 16
# Requests that list or count all topics, partitions or groups.
_LISTS_MAX, _LISTS_WAITING_MAX = 2, 64


class HttpServer:
    """Serves the broker's state over HTTP; the event loop owns it."""

    def __init__(
        self,
        broker: ConsoleServices,
        certificate: Certificate | None,
        sockets: Sequence[socket.socket],
        admin: AdminToken,
        shared: SharedPort | None = None,
    ) -> None:
        """Begin on bound sockets. With a `certificate`, connections use TLS."""
        self._broker, self._sockets = broker, sockets
        config = broker.configs.of(HttpConfig)
        self._certificate = certificate
        self.access = Access(
            admin,
            broker.loop.time,
            self._connections_max,
            lambda: broker.configs.of(HttpConfig),
            lambda: broker.security.authorizer is not None,
        )
        names = own_names(
            [*config.odradek_http_hosts, *(one.advertised_host for one in broker.server.listeners)]
        )
        self._guard = Guard(self.access, lambda: names)
        self._reads = ConcurrencyLimiter("look at logs", _READS_MAX, _READS_WAITING_MAX)
        self._lists = ConcurrencyLimiter("list topics or groups", _LISTS_MAX, _LISTS_WAITING_MAX)
        self._scrapes = ConcurrencyLimiter("read metrics", _LISTS_MAX, _LISTS_WAITING_MAX)
        app = web.Application(
            middlewares=[self._guard.handle], client_max_size=REQUEST_BYTES_MAX
        )
        app.on_response_prepare.append(protect)
        app.router.add_get("/metrics", self._scrapes.in_turn(self._metrics))
        app.router.add_get(PROBLEMS, self._health)
        app.router.add_get(LIVE, self._live)
        app.router.add_get(READY, self._ready)
        add_proof_routes(app, broker, self.access, self._reads)
        add_cleaner_routes(app, broker, self.access, self._reads, self._lists)
        add_page(app)
        self._united: UnitedAnswers | None = None
        if shared is not None and len(shared.paths) > 1:
            self._united = _unite(app, broker, shared)
        united = self._united
        add_state_routes(app, broker, self.access, None if united is None else united.state)
        add_cluster_routes(app, broker, self._lists)
        add_object_routes(app, broker, self._lists)
        add_topic_routes(app, broker, self._lists)
        add_group_routes(app, broker, self._lists)
        add_cluster_move_routes(app, broker, self.access)
        add_record_routes(app, broker, self._reads)
        add_console_routes(app, broker, self.access, self._lists)
        add_login_route(app, broker, self.access)
        self._runner = web.AppRunner(app, shutdown_timeout=_DRAIN_S)
        kafka_addresses = " or ".join(map(str, broker.server.listeners))
        self._limits = Limits(
            self._make_handler, broker.loop, self._connections_max, kafka_addresses
        )
        self._acceptor: Acceptor | None = None
        self._private: asyncio.Server | None = None

    async def listen(self) -> None:
        """Accept connections."""
        await self._set_up()
        limits, sockets = self._limits, self._sockets
        self._guard.limits = limits
        certificate = self._certificate
        self._acceptor = Acceptor(limits, None if certificate is None else certificate.context)
        for one in sockets:
            self._acceptor.listen(one)

    async def listen_privately(self, path: Path) -> None:
        """Accept connections of the machine's other workers at a socket of its own."""
        await self._set_up()
        self._private = await self._broker.loop.create_unix_server(
            lambda: self._make_handler(self._limits), path
        )

    async def _set_up(self) -> None:
        if self._runner.server is None:
            await self._runner.setup()

    def _connections_max(self) -> int:
        return self._broker.configs.of(HttpConfig).odradek_http_connections_max

    def _make_handler(self, limits: Limits) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        return RequestHandler(
            server,
            limits,
            loop=self._broker.loop,
            access_log=None,
            keepalive_timeout=IDLE_S,
            lingering_time=_DRAIN_S,
            # Compressed bodies are refused, or never read.
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Stop serving."""
        if self._acceptor is not None:
            await self._acceptor.close()
        if self._private is not None:
            self._private.close()
        await self._runner.cleanup()
        if self._united is not None:
            await self._united.close()
        for limiter in (self._reads, self._lists, self._scrapes):
            limiter.close()

    async def _metrics(self, _: web.Request) -> web.Response:
        with uncollected():
            snapshot = await take_snapshot(self._broker)
            text = await asyncio.get_running_loop().run_in_executor(None, render, snapshot)
            del snapshot
        return Answer(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _live(self, _: web.Request) -> web.Response:
        """Answer 200: the event loop works, so a restart would repair nothing."""
        return answer({"status": "ok"})

    async def _ready(self, _: web.Request) -> web.Response:
        """Answer whether clients are accepted."""
        if self._broker.accepts_clients:
            return answer({"status": "ok"})
        return answer({"status": "stopping"}, 503, {"Retry-After": "1"})

    async def _health(self, request: web.Request) -> web.Response:
        """Answer with the problems that an operator should look at; 503 when there are some.

        A broker with problems still serves, so neither restarts nor load balancers should depend
        on this.
        """
        problems = self._broker.problems()
        if problems and not self.access.may_read(request):
            problems = [f"{len(problems)} of them: reading them needs a token"]
        status = "failing" if problems else "ok"
        return answer({"status": status, "problems": problems}, 503 if problems else 200)


def _unite(app: web.Application, broker: ConsoleServices, shared: SharedPort) -> UnitedAnswers:
    from odradek.broker.web.united.answering import UnitedAnswers

    return UnitedAnswers(app, broker, shared)
