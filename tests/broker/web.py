"""Asks a broker of the test's own event loop over HTTP, with its admin token."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from broker.composition import Broker
from tests.broker.live import live

# The cleaner does what it is asked for, and nothing else.
SETTINGS = {"metrics.listener": "127.0.0.1:0", "log.cleaner.backoff.ms": "600000"}


@asynccontextmanager
async def serving(path: Path, settings: Mapping[str, str] | None = None) -> AsyncIterator[Broker]:
    """Start a broker with its HTTP listener."""
    async with live(path, {**SETTINGS, **(settings or {})}) as broker:
        yield broker


def url(broker: Broker) -> str:
    """Return where a broker serves HTTP."""
    host, port = broker.http_sockets[0].getsockname()
    return f"http://{host}:{port}"


async def request(
    broker: Broker,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    **query: str | int,
) -> tuple[int, bytes]:
    """Return the status and the body of an answer; the admin token is shown."""
    assert broker.web is not None
    shown = {"Authorization": f"Bearer {broker.web.access.token}", **(headers or {})}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url(broker) + path, headers=shown, params=query) as response,
    ):
        return response.status, await response.read()


async def get(broker: Broker, path: str, **query: str | int) -> Any:
    """Return what a path tells as JSON."""
    status, body = await request(broker, "GET", path, **query)
    assert status == 200, body
    return json.loads(body)


async def post(broker: Broker, path: str, **query: str | int) -> Any:
    """Have something done, and return what is told of it."""
    status, body = await request(broker, "POST", path, **query)
    assert status in (200, 202), body
    return json.loads(body)
