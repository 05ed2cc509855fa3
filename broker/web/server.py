"""The HTTP listener: the web page, /metrics for Prometheus, /health for whoever restarts things,
/api as JSON.

It is started after the Kafka listeners, so that loading the HTTP library delays no client.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from broker.exposition.render import render
from broker.exposition.snapshot import take_snapshot
from broker.web.access import grant_access
from broker.web.cleaner_routes import add_cleaner_routes
from broker.web.groups import add_group_routes
from broker.web.page import add_page
from broker.web.proofs import add_routes as add_proof_routes
from broker.web.records import add_record_routes
from broker.web.requests import answer_problems
from broker.web.state import add_state_routes
from broker.web.topics import add_topic_routes

if TYPE_CHECKING:
    from broker.composition import Broker

# How long a stop waits for answers that are on their way.
_DRAIN_S = 1.0


class HttpServer:
    """Serves the broker's state over HTTP; the event loop owns it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.access = grant_access(
            broker.fs, broker.directories[0].path, broker.config.odradek_admin_token
        )
        app = web.Application(middlewares=[answer_problems])
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        add_proof_routes(app, broker, self.access)
        add_cleaner_routes(app, broker, self.access)
        add_page(app)
        add_state_routes(app, broker, self.access)
        add_topic_routes(app, broker)
        add_group_routes(app, broker)
        add_record_routes(app, broker)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_DRAIN_S)
        self._sockets: Sequence[socket.socket] = ()

    async def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on bound sockets."""
        await self._runner.setup()
        self._sockets = sockets
        for one in sockets:
            await web.SockSite(self._runner, one).start()

    @property
    def url(self) -> str:
        """The address of the page, for a browser on this machine."""
        host, port = self._sockets[0].getsockname()[:2]
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    async def close(self) -> None:
        """Stop serving."""
        await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        snapshot = await take_snapshot(self._broker)
        text = await asyncio.get_running_loop().run_in_executor(None, render, snapshot)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _health(self, _: web.Request) -> web.Response:
        problems = self._broker.problems()
        status = "failing" if problems else "ok"
        body = json.dumps({"status": status, "problems": problems}, indent=2) + "\n"
        return web.Response(
            text=body, status=503 if problems else 200, content_type="application/json"
        )
