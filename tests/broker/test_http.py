"""The HTTP library is loaded by the first connection, and by nothing before it."""

from __future__ import annotations

import importlib
import json
import logging
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType

import pytest
import trustme

from odradek.broker import http
from odradek.broker.composition import Broker
from odradek.broker.web.certificate import Certificate
from odradek.protocol.messages.metadata import MetadataRequest
from tests.broker.live import client, live, on_uvloop, until
from tests.broker.test_web_tls import issue, trusting
from tests.broker.web import SETTINGS, ask, connection, is_reset
from tests.conftest import StartBroker

LIBRARY = "/aiohttp/"
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Loading:
    """The import of the HTTP server, which a test may hold up or refuse."""

    def __init__(self) -> None:
        self.count, self.may_end = 0, threading.Event()
        self.error: Exception | None = None

    def __call__(self, name: str) -> ModuleType:
        self.count += 1
        assert self.may_end.wait(60)
        if self.error is not None:
            raise self.error
        return importlib.import_module(name)


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loading]:
    made = Loading()
    monkeypatch.setattr(http, "import_module", made)
    yield made
    made.may_end.set()


async def status_of(broker: Broker) -> tuple[int, str]:
    status, _, body = await ask(broker, "/health/ready")
    return status, str(json.loads(body)["status"])


@pytest.mark.slow
def test_a_broker_that_nobody_asks_over_http_is_without_the_library(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    assert broker.process is not None
    maps = Path(f"/proc/{broker.process.pid}/maps")
    if not maps.exists():
        pytest.skip("only Linux shows which files are in memory")
    assert LIBRARY not in maps.read_text()
    with urllib.request.urlopen(f"{broker.http}/health/live", timeout=60) as answer:
        assert json.load(answer) == {"status": "ok"}
    assert LIBRARY in maps.read_text()


@on_uvloop
async def test_first_connections_wait_for_the_library_and_kafkas_clients_do_not(
    tmp_path: Path, loading: Loading
) -> None:
    async with live(tmp_path, SETTINGS) as broker, AsyncExitStack() as stack:
        assert broker.http.token is not None and loading.count == 0
        opened = [await stack.enter_async_context(connection(broker)) for _ in range(3)]
        for _, writer in opened:
            writer.write(LIVE)
        await until(lambda: loading.count)
        async with client(broker) as one:
            assert (await one.ask(MetadataRequest(topics=[]), version=12)).brokers
        assert broker.http.server is None
        loading.may_end.set()
        for reader, _ in opened:
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        assert await status_of(broker) == (200, "ok")
        assert loading.count == 1


@on_uvloop
async def test_a_broker_may_stop_before_and_while_the_library_is_loaded(
    tmp_path: Path, loading: Loading
) -> None:
    async with live(tmp_path, SETTINGS):
        pass
    async with live(tmp_path, SETTINGS) as broker, connection(broker) as (reader, writer):
        writer.write(LIVE)
        await until(lambda: loading.count)
        await broker.stop()
        assert broker.http.server is None
        assert await is_reset(reader)
        loading.may_end.set()  # the end of the loop waits for its threads


@on_uvloop
async def test_a_library_that_cannot_be_loaded_is_reported(
    tmp_path: Path, loading: Loading, caplog: pytest.LogCaptureFixture
) -> None:
    loading.error = ImportError("No module named 'aiohttp'")
    loading.may_end.set()
    async with live(tmp_path, SETTINGS) as broker:
        for _ in range(2):
            status, reason = await status_of(broker)
            assert status == 503 and "unable to serve HTTP" in reason
        assert "No module named 'aiohttp'" in caplog.text
        assert any(record.levelno == logging.ERROR for record in caplog.records)


@on_uvloop
async def test_a_certificate_that_was_replaced_before_the_first_connection_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    follow = Certificate.follow
    monkeypatch.setattr(Certificate, "follow", lambda self: follow(self, every_s=0.01))
    former, authority = trustme.CA(), trustme.CA()
    settings = {**SETTINGS, **issue(former, tmp_path / "tls", "localhost")}
    async with live(tmp_path, settings) as broker:
        issue(authority, tmp_path / "tls", "localhost")
        await until(lambda: "read the certificate for HTTP again" in caplog.text)
        with pytest.raises(ssl.SSLError):
            async with connection(broker, trusting(former)):
                pass
        async with connection(broker, trusting(authority)) as (reader, writer):
            writer.write(LIVE)
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
