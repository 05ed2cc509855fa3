"""Requests that read logs or list very much take turns; a client that has gone waits for none."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from odradek.broker.composition import Broker
from odradek.broker.web import concurrency, proofs, records, server
from odradek.broker.web.concurrency import ConcurrencyLimiter
from odradek.cleaner.errors import CleaningAborted
from tests.broker.live import PATIENCE_S, append, batch, create, on_uvloop, until
from tests.broker.web import connection, request, serving

READS = [
    ("GET", "/api/records?topic=prices"),
    ("GET", "/api/latest?topic=prices"),
    ("GET", "/api/get?topic=prices&key=k"),
    ("GET", "/api/cleaner/plan?topic=prices"),
    ("POST", "/api/cleaner/verify?topic=prices&dry_run=true"),
]
LISTS = [
    ("GET", path)
    for path in (
        "/api/topics",
        "/api/topic?topic=prices",
        "/api/groups",
        "/api/cleaner",
        "/api/cleaner/plan",
        "/api/cleaner/why?topic=prices&partition=0",
        "/api/cleaner/runs",
    )
]


async def fill(broker: Broker) -> None:
    (log,) = (await create(broker, "prices")).logs
    append(log, batch(b"v", key=b"k"))


def turns(broker: Broker, name: str) -> ConcurrencyLimiter:
    assert broker.http.server is not None
    return {"reads": broker.http.server._reads, "lists": broker.http.server._lists}[name]


async def take_all(one: ConcurrencyLimiter) -> None:
    while not one._places.locked():
        await one._places.acquire()


@pytest.mark.parametrize(
    ("name", "method", "path"),
    [*(("reads", *one) for one in READS), *(("lists", *one) for one in LISTS)],
)
@on_uvloop
async def test_requests_wait_for_their_turn(
    tmp_path: Path, name: str, method: str, path: str
) -> None:
    async with serving(tmp_path) as broker:
        await fill(broker)
        one = turns(broker, name)
        await take_all(one)
        asked = asyncio.ensure_future(request(broker, method, path))
        await until(lambda: one._waiting == 1)
        assert not asked.done()
        one._places.release()
        status, _ = await asyncio.wait_for(asked, PATIENCE_S)
        assert status == 200
        await until(lambda: not one._places.locked())  # the turn was given back


@on_uvloop
async def test_a_client_that_has_gone_waits_for_no_turn(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await fill(broker)
        one = turns(broker, "reads")
        await take_all(one)
        async with connection(broker) as (_, writer):
            writer.write(b"GET /api/get?topic=prices&key=k HTTP/1.1\r\nHost: [::1]\r\n\r\n")
            await until(lambda: one._waiting == 1)
        await until(lambda: one._waiting == 0)
        one._places.release()
        status, _ = await request(broker, "GET", "/api/get?topic=prices&key=k")
        assert status == 200


@on_uvloop
async def test_no_more_wait_than_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_READS_WAITING_MAX", 1)
    async with serving(tmp_path) as broker:
        await fill(broker)
        one = turns(broker, "reads")
        await take_all(one)
        asked = asyncio.ensure_future(request(broker, *READS[0]))
        await until(lambda: one._waiting == 1)
        status, body = await request(broker, *READS[1])
        assert status == 503 and "try again later" in json.loads(body)["error"]
        # What only lists what there is has turns of its own.
        assert (await request(broker, "GET", "/api/topics"))[0] == 200
        one._places.release()
        assert (await asked)[0] == 200


@pytest.mark.parametrize("module", [records, proofs], ids=["records", "a key"])
@on_uvloop
async def test_a_look_ends_when_who_asked_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: object
) -> None:
    began, ended = threading.Event(), threading.Event()

    def look(*args: object, before_io: Callable[[int], None], **settings: object) -> object:
        began.set()
        deadline = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < deadline:
                before_io(0)
        except CleaningAborted:
            ended.set()
            raise
        raise AssertionError("nobody stopped it")

    is_browse = module is records
    monkeypatch.setattr(module, "browse" if is_browse else "find_latest", look)
    _, path = READS[0] if is_browse else READS[2]
    async with serving(tmp_path) as broker, AsyncExitStack() as stack:
        await fill(broker)
        _, writer = await stack.enter_async_context(connection(broker))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: [::1]\r\n\r\n".encode())
        await until(began.is_set)
        await stack.aclose()
        await until(ended.is_set)
        await until(lambda: not turns(broker, "reads")._places.locked())


@pytest.mark.parametrize("sending_s", [600.0, 0.2])
@on_uvloop
async def test_a_turn_lasts_until_the_answer_is_read_but_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sending_s: float
) -> None:
    monkeypatch.setattr(concurrency, "_SENDING_S", sending_s)
    async with serving(tmp_path) as broker, AsyncExitStack() as stack:
        (log,) = (await create(broker, "prices")).logs
        append(log, batch(bytes(1_000_000), key=b"k"))
        one = turns(broker, "reads")
        for _ in range(2):
            _, writer = await stack.enter_async_context(connection(broker))
            # Not even the sockets' own buffers take six megabytes.
            writer.transport.pause_reading()
            writer.write(b"GET /api/get?topic=prices&key=k HTTP/1.1\r\nHost: [::1]\r\n\r\n")
        await until(one._places.locked)
        asked = asyncio.ensure_future(request(broker, "GET", "/api/records?topic=prices"))
        if sending_s > PATIENCE_S:
            await until(lambda: one._waiting == 1)
            done, _ = await asyncio.wait([asked], timeout=1.0)
            assert not done
            await stack.aclose()
        status, _ = await asyncio.wait_for(asked, PATIENCE_S)
        assert status == 200
        await until(lambda: not one._places.locked())
