"""Liveness, readiness and the list of problems: one route each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from odradek.broker.clock import SystemClock
from odradek.broker.composition import Broker
from odradek.broker.topics.registry import Topics
from odradek.broker.web import early
from odradek.config.errors import ConfigError
from odradek.config.resolution import Layer, Source
from odradek.storage.real_files import RealFileSystem
from tests.broker.live import PATIENCE_S, client, on_uvloop, until
from tests.broker.test_web_tls import issue, tear, trusting
from tests.broker.web import ask, bearer, connection, is_reset, serving, url

LIVE, READY, HEALTH = PATHS = ("/health/live", "/health/ready", "/health")


@asynccontextmanager
async def starting(
    path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str] | None = None
) -> AsyncIterator[tuple[Broker, asyncio.Event, asyncio.Future[None]]]:
    """Start a broker that loads its topics once an event is set; return its start, too."""
    is_loading, may_load = asyncio.Event(), asyncio.Event()
    load = Topics.load

    async def load_later(self: Topics, *given: Any) -> None:
        is_loading.set()
        await may_load.wait()
        await load(self, *given)

    monkeypatch.setattr(Topics, "load", load_later)
    values = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": "127.0.0.1:0",
        "log.dirs": str(path / "data"),
        **(settings or {}),
    }
    own = RealFileSystem()
    broker = Broker(Layer(Source.STATIC_BROKER, values), own, SystemClock())
    start = asyncio.ensure_future(broker.start())
    await until(lambda: start.done() or is_loading.is_set())
    try:
        yield broker, may_load, start
    finally:
        may_load.set()
        if await asyncio.gather(start, return_exceptions=True) == [None]:
            await broker.stop()
        own.close()


async def statuses(broker: Broker) -> list[int]:
    return [(await ask(broker, path))[0] for path in PATHS]


@on_uvloop
async def test_a_problem_is_no_reason_to_restart_a_broker_or_to_pass_it_by(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        assert await statuses(broker) == [200, 200, 200]
        broker.problems = lambda: ["prices-0 is offline"]  # type: ignore[method-assign]
        assert await statuses(broker) == [200, 200, 503]
        assert json.loads((await ask(broker, HEALTH))[2])["problems"] == ["prices-0 is offline"]


@on_uvloop
async def test_probes_take_no_token_and_count_none(tmp_path: Path) -> None:
    async with serving(tmp_path, {"odradek.http.read.token": "look-only-17"}) as broker:
        for number in range(30):
            for path in (LIVE, READY):
                assert (await ask(broker, path, bearer(f"guess-{number}")))[0] == 200
        assert (await ask(broker, "/metrics", bearer("guess-99")))[0] == 401


@on_uvloop
async def test_a_broker_that_starts_is_alive_and_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with starting(tmp_path, monkeypatch) as (broker, may_load, start):
        assert await statuses(broker) == [200, 503, 503]
        for path in PATHS:
            _, headers, body = await ask(broker, path)
            assert json.loads(body)["status"] == "starting"
            assert headers["Server"] == "Odradek" and headers["Cache-Control"] == "no-store"
        assert "starting" in json.loads((await ask(broker, HEALTH))[2])["problems"][0]
        status, headers, body = await ask(broker, "/metrics")
        assert status == 503 and headers["Retry-After"] == "1" and b"starting" in body
        assert (await ask(broker, f"{LIVE}?a=b", method="HEAD"))[0::2] == (200, b"")
        may_load.set()
        await start
        assert await statuses(broker) == [200, 200, 200]
        assert (await ask(broker, "/metrics"))[0] == 200


@on_uvloop
async def test_once_clients_are_accepted_nobody_hears_that_the_broker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with starting(tmp_path, monkeypatch) as (broker, may_load, start):
        asked: list[tuple[bool, int, int]] = []

        async def keep_asking() -> None:
            while not start.done():
                accepted = broker.accepts_clients
                live, ready, _ = await statuses(broker)
                asked.append((accepted, live, ready))

        asking = asyncio.ensure_future(keep_asking())
        await until(lambda: asked)
        may_load.set()
        await start
        await asking
        assert {live for _, live, _ in asked} == {200}
        assert {ready for accepted, _, ready in asked if accepted} <= {200}


@on_uvloop
async def test_a_broker_that_stops_is_alive_and_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with starting(tmp_path, monkeypatch) as (broker, may_load, start):
        may_load.set()
        await start
        base, may_stop = url(broker), asyncio.Event()
        turn_away = broker.server.turn_away

        async def stop_later() -> None:
            await may_stop.wait()
            await turn_away()

        monkeypatch.setattr(broker.server, "turn_away", stop_later)
        stopping = asyncio.ensure_future(broker.stop())

        async def state_of(path: str) -> tuple[int, str]:
            async with aiohttp.ClientSession() as session, session.get(base + path) as response:
                return response.status, str((await response.json())["status"])

        async with asyncio.timeout(PATIENCE_S):
            # There is an answer all the time.
            while (state := await state_of(LIVE)) != (200, "stopping"):
                assert state == (200, "ok")
        assert await state_of(READY) == await state_of(HEALTH) == (503, "stopping")
        assert not stopping.done()
        may_stop.set()
        await stopping
        with pytest.raises(aiohttp.ClientConnectionError):
            await state_of(LIVE)


@on_uvloop
async def test_an_answer_that_is_on_its_way_says_that_the_broker_stops(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        broker.accepts_clients = False  # as while stop() waits for the HTTP listener
        status, _, body = await ask(broker, READY)
        assert status == 503 and json.loads(body)["status"] == "stopping"


@on_uvloop
async def test_over_tls_the_early_answers_are_secured_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    settings = issue(authority, tmp_path / "tls")
    async with starting(tmp_path, monkeypatch, settings) as (broker, _, _):
        async with connection(broker, trusting(authority)) as (reader, writer):
            writer.write(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        async with connection(broker) as (reader, writer):
            writer.write(b"GET /health/live HTTP/1.0\r\n\r\n")
            assert await is_reset(reader)


@on_uvloop
async def test_a_bad_certificate_ends_the_start_before_the_data_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = issue(trustme.CA(), tmp_path / "tls")
    tear(settings["odradek.http.tls.certificate"])
    async with starting(tmp_path, monkeypatch, settings) as (_, _, start):
        with pytest.raises(ConfigError, match=r"odradek\.http\.tls\.certificate"):
            await start
        assert not (tmp_path / "data").exists()


@on_uvloop
async def test_early_answers_are_few_and_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early, "CONNECTIONS_MAX", 3)
    async with starting(tmp_path, monkeypatch) as (broker, _, _), AsyncExitStack() as open_now:
        for _ in range(3):
            await open_now.enter_async_context(connection(broker))
        async with connection(broker) as (reader, _):
            assert await is_reset(reader)
        await open_now.aclose()
        assert broker.http._early is not None
        await until(lambda: not broker.http._early._open)
        async with asyncio.timeout(PATIENCE_S):
            # Bytes that are no request of HTTP have an answer that fits any request.
            async with connection(broker) as (reader, writer):
                writer.write(b"\x00\xff\r\n\r\n")
                assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
            monkeypatch.setattr(early, "REQUEST_S", 0.1)
            for sent in (b"", b"GET /health/live HTTP/1.1\r\n", b"GET /" + b"a" * 20_000):
                async with connection(broker) as (reader, writer):
                    writer.write(sent)
                    assert await is_reset(reader)


@on_uvloop
async def test_clients_are_served_as_soon_as_the_broker_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with starting(tmp_path, monkeypatch) as (broker, may_load, start):
        assert not broker.accepts_clients
        with pytest.raises(ConnectionRefusedError):
            async with client(broker):
                pass
        may_load.set()
        await start
        async with client(broker):
            assert (await ask(broker, READY))[0] == 200
