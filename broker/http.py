"""The HTTP listener: /metrics for Prometheus, /health for whoever restarts things.

It is started after the Kafka listeners, so that loading the HTTP library delays no client.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from broker.metrics import BrokerCollector

if TYPE_CHECKING:
    from broker.composition import Broker


class HttpServer:
    """Serves the broker's state over HTTP; the event loop owns it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(BrokerCollector(broker))
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        self._runner = web.AppRunner(app, access_log=None)
        self.port = 0

    async def listen(self, host: str, port: int) -> None:
        """Accept connections on an address; raises OSError when it cannot be had."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host or None, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop serving."""
        await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        text = generate_latest(self._registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _health(self, _: web.Request) -> web.Response:
        problems = self._broker.problems()
        status = "failing" if problems else "ok"
        body = json.dumps({"status": status, "problems": problems}, indent=2) + "\n"
        return web.Response(
            text=body, status=503 if problems else 200, content_type="application/json"
        )
