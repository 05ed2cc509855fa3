"""Asks a broker of the test's own event loop over HTTP, with its admin token."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from odradek.broker.composition import Broker
from tests.broker.live import PATIENCE_S, live

# The cleaner does what it is asked for, and nothing else.
SETTINGS = {"metrics.listener": "127.0.0.1:0", "log.cleaner.backoff.ms": "600000"}


@asynccontextmanager
async def serving(path: Path, settings: Mapping[str, str] | None = None) -> AsyncIterator[Broker]:
    """Start a broker; its HTTP server is loaded where it has one."""
    async with live(path, {**SETTINGS, **(settings or {})}) as broker:
        if broker.http.sockets:
            await broker.http.load()
        yield broker


def url(broker: Broker) -> str:
    """Return where a broker serves HTTP."""
    host, port = broker.http.sockets[0].getsockname()
    return f"http://{host}:{port}"


async def request(
    broker: Broker,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    **query: str | int,
) -> tuple[int, bytes]:
    """Return the status and the body of an answer; the admin token is shown."""
    assert broker.http.token is not None
    shown = {"Authorization": f"Bearer {broker.http.token.text}", **(headers or {})}
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


def bearer(token: str) -> dict[str, str]:
    """Return the header that shows a token."""
    return {"Authorization": f"Bearer {token}"}


async def ask(
    broker: Broker, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    """Ask without any header of ours."""
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url(broker) + path, headers=headers) as response,
    ):
        if response.content_type == "text/event-stream":
            return response.status, dict(response.headers), b""
        return response.status, dict(response.headers), await response.read()


@asynccontextmanager
async def connection(
    broker: Broker, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a broker's HTTP listener, over TLS with a context."""
    host, port = broker.http.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(
        host, port, ssl=context, server_hostname="localhost" if context else None
    )
    try:
        yield reader, writer
    finally:
        writer.close()


async def is_reset(reader: asyncio.StreamReader) -> bool:
    """Wait until the broker ends a connection."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            while await reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        return True
