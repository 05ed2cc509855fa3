"""The HTTP listener: /metrics for Prometheus, /health for whoever restarts things, /api as JSON.

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

from broker.exposition import render
from broker.metrics import take_snapshot
from broker.web.cleaner_routes import add_cleaner_routes
from broker.web.proofs import add_routes as add_proof_routes
from broker.web.requests import answer_problems

if TYPE_CHECKING:
    from broker.composition import Broker

# How long a stop waits for answers that are on their way.
_DRAIN_S = 1.0


class HttpServer:
    """Serves the broker's state over HTTP; the event loop owns it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        app = web.Application(middlewares=[answer_problems])
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        add_proof_routes(app, broker)
        add_cleaner_routes(app, broker)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_DRAIN_S)
        self.port = 0

    async def listen(self, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on bound sockets."""
        await self._runner.setup()
        for one in sockets:
            await web.SockSite(self._runner, one).start()
        self.port = sockets[0].getsockname()[1]

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
