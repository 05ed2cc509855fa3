"""What a connection over HTTP may take: time, bytes, places."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.broker.web import limits
from tests.broker.live import PATIENCE_S, append, batch, create, on_uvloop, until
from tests.broker.web import ask, connection, is_reset, serving


@pytest.mark.parametrize("sent", [b"", b"GET /api/top", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
@on_uvloop
async def test_a_request_that_does_not_arrive_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(limits, "HEAD_S", 0.2)
    async with serving(tmp_path) as broker, connection(broker) as (reader, writer):
        writer.write(sent)
        assert await is_reset(reader)
        monkeypatch.undo()  # a busy machine may take longer for a whole one
        assert (await ask(broker, "/health"))[0] == 200


@on_uvloop
async def test_dripping_a_head_gains_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEAD_S", 0.3)
    async with serving(tmp_path) as broker, connection(broker) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n")
        gone = asyncio.ensure_future(is_reset(reader))
        async with asyncio.timeout(PATIENCE_S):
            while not gone.done():
                writer.write(b"X: y\r\n")
                await asyncio.wait([gone], timeout=0.02)


@on_uvloop
async def test_a_connection_may_be_used_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, connection(broker) as (reader, writer):
        assert broker.http.server is not None and broker.http.server._guard.limits is not None
        guard = broker.http.server._guard.limits
        for _ in range(3):
            writer.write(b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            (one,) = guard._open
            await until(lambda: not one._is_answering)  # noqa: B023
            # The time that a head may take counts once it begins, and none has.
            assert one._head_timer is None


@pytest.mark.parametrize("length", [b"Content-Length: 9000000", b"Transfer-Encoding: chunked"])
@on_uvloop
async def test_a_large_request_is_not_taken(tmp_path: Path, length: bytes) -> None:
    async with serving(tmp_path) as broker, connection(broker) as (reader, writer):
        gone = asyncio.ensure_future(is_reset(reader))
        writer.write(b"POST /api/cleaner/run HTTP/1.1\r\nHost: [::1]\r\n" + length + b"\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            while not gone.done():
                writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
                await asyncio.wait([gone], timeout=0.005)
        assert (await ask(broker, "/health"))[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer one\r\x01\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer one\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: a\r\n" % at for at in range(200)) + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"\x00\x00\x00\x10\x00\x7f\x00\x00" + bytes(16),
    ],
    ids=["URL", "control character", "space", "line", "field", "fields", "TLS", "nobody's"],
)
@on_uvloop
async def test_bytes_that_are_no_request_are_refused(
    tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as broker:
        for _ in range(3):
            async with connection(broker) as (reader, writer):
                writer.write(sent)
                answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
            assert len(answer) < 2000
            assert b"Server: Odradek\r\n" in answer and b"aiohttp" not in answer
            assert b"Content-Security-Policy: default-src 'none'" in answer
    # One line for all of them, with none of the bytes that were sent.
    told = [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")]
    assert [one.getMessage() for one in told] == [
        "refused bytes that are not an HTTP request count=1 last_address=127.0.0.1"
    ]
    assert told[0].exc_info is None


@on_uvloop
async def test_a_malformed_body_is_logged_once_and_without_its_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serving(tmp_path) as broker:
        for body in (b"secret\r\n", b"3\r\nabcsecret\r\n"):
            async with connection(broker) as (reader, writer):
                writer.write(head + body)
                assert b" 400 " in await asyncio.wait_for(reader.readline(), PATIENCE_S)
            async with connection(broker) as (reader, writer):
                writer.write(head)
                assert b" 405 " in await asyncio.wait_for(reader.readline(), PATIENCE_S)
                writer.write(body)
                assert await is_reset(reader)
    assert "secret" not in caplog.text and "Traceback" not in caplog.text
    assert sum(one.levelname == "WARNING" for one in caplog.records) == 1


@on_uvloop
async def test_nothing_is_unpacked_to_be_thrown_away(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker, connection(broker) as (reader, writer):
        head = b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n"
        # Whoever tries to unpack it finds that it is not packed, and ends the connection.
        writer.write(head + b"Content-Length: 6\r\n\r\nabcdef")
        writer.write(b"GET / HTTP/1.0\r\nConnection: close\r\n\r\n")
        answers = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert answers.startswith(b"HTTP/1.1 200") and b"HTTP/1.0 200" in answers


@on_uvloop
async def test_a_client_that_does_not_read_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STALL_S", 0.2)
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices")).logs
        for at in range(200):
            append(log, batch(b"v" * 8000, key=b"k%d" % at))
        assert broker.http.server is not None
        guard = broker.http.server._guard.limits
        assert guard is not None
        async with connection(broker) as (_, writer):
            ask_all = b"GET /api/records?topic=prices&limit=1000 HTTP/1.1\r\nHost: [::1]\r\n\r\n"
            writer.transport.pause_reading()
            writer.write(ask_all * 20)
            await until(lambda: guard._open)
            await until(lambda: not guard._open)


@on_uvloop
async def test_connections_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, {"odradek.http.connections.max": "6"}) as broker:
        # Half of them are of this address; the other half is for somebody else.
        async with (
            connection(broker),
            connection(broker),
            connection(broker),
            connection(broker) as (reader, _),
            connection(broker) as (other, _),
        ):
            assert await is_reset(reader) and await is_reset(other)
        assert broker.http.server is not None and broker.http.server._guard.limits is not None
        await until(lambda: not broker.http.server._guard.limits._open)
        assert (await ask(broker, "/health"))[0] == 200
    assert len([one for one in caplog.messages if "refused connections" in one]) == 1


