"""The log names the right port when a client has mixed up those of Kafka and of HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from odradek.protocol.frames import encode_request
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.live import PATIENCE_S, on_uvloop, until
from tests.broker.sasl_client import settings as sasl_settings
from tests.broker.web import ask, connection, serving

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname in ("WARNING", "ERROR")]


@pytest.mark.parametrize(
    "sent",
    [
        encode_request(ApiVersionsRequest(client_software_name="a"), 4, 0, "rdkafka"),
        encode_request(ApiVersionsRequest(), 0, 0, None),
        encode_request(MetadataRequest(topics=None), 1, 0, "c"),
        encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 0, "c"),
    ],
    ids=["ApiVersions", "ApiVersions 0", "Metadata", "SaslHandshake"],
)
@on_uvloop
async def test_a_first_request_of_kafkas_at_the_http_port_is_answered_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    async with serving(tmp_path) as broker:
        for _ in range(5):
            async with connection(broker) as (reader, writer):
                writer.write(sent)
                answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
            assert answer.startswith(b"HTTP/1.0 400")
        kafka_port = broker.server.listeners[0].port
        assert (await ask(broker, "/health/live"))[0] == 200
    (line,) = warnings(caplog)
    assert "a client of Kafka's protocol came to the HTTP listener" in line
    assert f"127.0.0.1:{kafka_port} " in line and "last_address=127.0.0.1" in line


def try_librdkafka(address: str) -> None:
    AdminClient({"bootstrap.servers": address, "log_level": 0}).poll(1.0)


def try_kafka_python(address: str) -> None:
    with pytest.raises(KafkaError):
        KafkaAdminClient(bootstrap_servers=address, bootstrap_timeout_ms=1000)


def try_kcat(address: str) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("there is no kcat here")
    subprocess.run(["kcat", "-L", "-m", "1", "-b", address], capture_output=True, check=False)


@pytest.mark.parametrize("attempt", [try_librdkafka, try_kafka_python, try_kcat])
@on_uvloop
async def test_a_kafka_client_at_the_http_port_is_recognised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, attempt: object
) -> None:
    assert callable(attempt)
    async with serving(tmp_path) as broker:
        http_port = broker.http.sockets[0].getsockname()[1]
        await asyncio.to_thread(attempt, f"127.0.0.1:{http_port}")
        await until(lambda: warnings(caplog))
    came = "Kafka's protocol came to the HTTP listener"
    lines = [one for one in warnings(caplog) if came in one]
    assert len(lines) == 1


@pytest.mark.parametrize("method", METHODS)
@on_uvloop
async def test_an_http_request_at_kafkas_port_has_the_http_port_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    async with serving(tmp_path) as broker:
        http_port = broker.http.sockets[0].getsockname()[1]
        port = broker.server.listeners[0].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{method} /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()
    (line,) = warnings(caplog)
    assert "an HTTP request came to a listener of Kafka's protocol" in line
    assert f"port {http_port} " in line


@on_uvloop
async def test_a_sasl_listener_recognises_http_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, sasl_settings()) as broker:
        http_port = broker.http.sockets[0].getsockname()[1]
        port = broker.server.listeners[1].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        # The first bytes come alone: they are enough.
        writer.write(b"GET ")
        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()
    (line,) = warnings(caplog)
    assert "an HTTP request came" in line and f"port {http_port} " in line


@on_uvloop
async def test_without_an_http_listener_a_request_over_http_is_recognised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, {"metrics.listener": ""}) as broker:
        port = broker.server.listeners[0].port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
    (line,) = warnings(caplog)
    assert "metrics.listener is empty" in line
