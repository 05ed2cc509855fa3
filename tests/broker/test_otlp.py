"""Metrics pushed by OTLP: what comes is what /metrics tells, and no collector hurts the broker."""

from __future__ import annotations

import json
import logging
import math
import socket
import ssl
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from google.protobuf.json_format import Parse
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from bench.processes import ROOT, OdradekProcess
from odradek.broker.observability.otlp import encoding
from odradek.broker.observability.otlp.encoding import Origin, requests
from odradek.broker.observability.otlp.pusher import Trouble
from odradek.config.effective import resolve_broker
from odradek.config.errors import ConfigError
from odradek.config.resolution import Layer, Source
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.collector import Collector, accept, collecting
from tests.broker.live import append, batch, client, create, live, on_uvloop, until
from tests.conftest import StartBroker
from tests.support.waiting import wait_until

ORIGIN = Origin({"service.name": "odradek"}, "odradek", "1", start_ms=1_000)
SECRET = "not-to-be-told"


def settings_of(collector: Collector, **others: str) -> dict[str, str]:
    return {
        "odradek.otlp.endpoint": f"http://127.0.0.1:{collector.port}",
        "odradek.otlp.interval.ms": "100",
        **others,
    }


def normal(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return labels in an order, with numbers as numbers are written: 0.5 for 0.50."""
    return tuple(
        (name, f"{float(text):g}" if name in ("quantile", "le") else text)
        for name, text in sorted(labels.items())
    )


def samples_of(collector: Collector) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return what came as the samples that /metrics would have."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def add(name: str, labels: dict[str, str], value: float) -> None:
        found[name, normal(labels)] = value

    for name, kind, labels, point in collector.points():
        if kind in ("gauge", "sum"):
            add(name, labels, point.as_double)
            continue
        add(f"{name}_count", labels, point.count)
        add(f"{name}_sum", labels, point.sum)
        if kind == "summary":
            for one in point.quantile_values:
                add(name, {**labels, "quantile": str(one.quantile)}, one.value)
            continue
        below = 0
        bounds = [*point.explicit_bounds, math.inf]
        for bound, count in zip(bounds, point.bucket_counts, strict=True):
            below += count
            add(f"{name}_bucket", {**labels, "le": str(bound)}, below)
    return found


@on_uvloop
async def test_pushed_samples_equal_those_of_the_metrics_page(tmp_path: Path) -> None:
    with collecting() as collector:
        settings = settings_of(collector, **{"metrics.listener": "127.0.0.1:0"})
        async with live(tmp_path, settings) as broker, client(broker) as one:
            await create(broker, "prices", 3, configs={"cleanup.policy": "compact"})
            for log in (await create(broker, "orders", 3)).logs:
                append(log, batch(b"a value"))
            await one.ask(ApiVersionsRequest(), version=3)
            await until(lambda: len(collector.requests) >= 2)
            collector.requests.clear()
            await until(lambda: bool(collector.requests))
            pushed = samples_of(collector)
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{broker.http.url.rstrip('/')}/metrics") as got,
            ):
                told = {
                    (sample.name, normal(sample.labels)): sample.value
                    for family in text_string_to_metric_families(await got.text())
                    for sample in family.samples
                }
            assert set(pushed) == set(told)
            moving = ("process_", "odradek_otlp_", "odradek_disk_free", "_ms", "_seconds")
            still = [key for key in told if not any(one in key[0] for one in moving)]
            assert len(still) > 100
            assert {key: pushed[key] for key in still} == {key: told[key] for key in still}
            request = collector.requests[0]
            (resource,) = request.resource_metrics
            attributes = {
                one.key: one.value.string_value for one in resource.resource.attributes
            }
            assert attributes["service.name"] == "odradek"
            assert attributes["service.instance.id"] == f"{broker.cluster_id}/1"
            for _, kind, _, point in collector.points():
                assert point.time_unix_nano > point.start_time_unix_nano > 10**18, kind
            assert set(collector.paths) == {"/v1/metrics"}


@on_uvloop
async def test_headers_and_a_path_of_its_own_are_sent(tmp_path: Path) -> None:
    with collecting() as collector:
        settings = settings_of(
            collector, **{"odradek.otlp.headers": "Authorization=Bearer%20a%2Cb, X-Scope=7"}
        )
        settings["odradek.otlp.endpoint"] += "/otlp/v1/metrics?key=1"
        async with live(tmp_path, settings):
            await until(lambda: bool(collector.requests))
    assert collector.paths[0] == "/otlp/v1/metrics?key=1"
    assert collector.headers[0]["Authorization"] == "Bearer a,b"
    assert collector.headers[0]["X-Scope"] == "7"


@on_uvloop
async def test_a_collector_that_refuses_is_logged_once_and_again_when_it_accepts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def refuse(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(503, f"Unavailable {SECRET}")
        for line in (handler.headers["Authorization"] or "", SECRET):
            handler.send_header("X-Told", line)
        handler.send_header("Content-Length", str(len(SECRET)))
        handler.end_headers()
        handler.wfile.write(SECRET.encode())

    def leave_out(handler: BaseHTTPRequestHandler) -> None:
        told = {"partialSuccess": {"rejectedDataPoints": "3", "errorMessage": SECRET}}
        accept(handler, json.dumps(told).encode())

    with collecting() as collector:
        collector.answer = refuse
        headers = {"odradek.otlp.headers": f"Authorization=Bearer%20{SECRET}"}
        settings = settings_of(collector, **headers)
        settings["odradek.otlp.endpoint"] += f"/v1/metrics?key={SECRET}"
        async with live(tmp_path, settings) as broker:
            await until(lambda: broker.metrics.otlp_failures >= 3)
            collector.answer = accept
            await until(lambda: "again" in caplog.text)
            collector.answer = leave_out
            failures = broker.metrics.otlp_failures
            await until(lambda: broker.metrics.otlp_failures > failures)
    where = f"endpoint=http://127.0.0.1:{collector.port}/v1/metrics"
    told = [one.getMessage() for one in caplog.records if "push" in one.getMessage()]
    assert told == [
        f"pushing metrics {where} interval_s=0.1",
        f"could not push metrics {where} count=1: it answered 503 Service Unavailable",
        f"pushed metrics again {where}",
        f"could not push metrics {where} count=1: it left out 3 values",
    ]
    assert SECRET not in caplog.text


def test_a_collector_that_goes_on_refusing_is_logged_every_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    moments = iter(range(0, 300_000, 10_000))
    trouble = Trouble("there", lambda: next(moments))
    for _ in range(30):
        trouble.refused("no answer")
    assert [one.split(": ")[0].rsplit("=")[-1] for one in caplog.messages] == ["1"] + ["6"] * 4


@pytest.mark.parametrize("kind", ["nobody", "silent", "trickling", "another protocol"])
@on_uvloop
async def test_a_collector_that_is_none_holds_nothing_up(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    causes = {"nobody": "Connection refused", "another protocol": "it does not speak HTTP"}
    # A collector that answers has the time to; one that does not is left soon.
    timeout_s = 60.0 if kind in causes else 0.3
    monkeypatch.setattr("odradek.broker.observability.otlp.pusher._TIMEOUT_S", timeout_s)
    with socket.create_server(("127.0.0.1", 0)) as server, collecting() as collector:
        port = server.getsockname()[1]
        if kind == "nobody":
            server.close()
        elif kind == "trickling":
            port, collector.answer = collector.port, _trickle
        elif kind == "another protocol":
            port, collector.answer = collector.port, lambda one: _write(one, b"SSH-2.0\r\n")
        settings = {
            "odradek.otlp.endpoint": f"http://127.0.0.1:{port}",
            "odradek.otlp.interval.ms": "100",
        }
        async with live(tmp_path, settings) as broker, client(broker) as one:
            await until(lambda: broker.metrics.otlp_failures >= 1)
            await one.ask(ApiVersionsRequest(), version=3)
        # A stop waits for no collector: the one that trickles goes on for an hour.
    assert causes.get(kind, "no answer within 0.3 s") in caplog.text


def _write(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.wfile.write(data)
    handler.wfile.flush()
    handler.close_connection = True


def _trickle(handler: BaseHTTPRequestHandler) -> None:
    """Answer for an hour, a byte before each single timeout."""
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(72_000):
            handler.wfile.write(b"x")
            time.sleep(0.05)  # the slow answer is what the test is about
    except OSError:
        handler.close_connection = True


@on_uvloop
async def test_a_collector_behind_tls_has_to_show_a_certificate_that_is_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusted = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(trusted))
    with collecting(context) as collector:
        settings = settings_of(collector)
        settings["odradek.otlp.endpoint"] = f"https://127.0.0.1:{collector.port}"
        async with live(tmp_path, settings) as broker:
            await until(lambda: broker.metrics.otlp_failures >= 1)
            assert "certificate verify failed" in caplog.text and not collector.requests
            monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
            await until(lambda: bool(collector.requests))
            assert collector.paths[0] == "/v1/metrics"


def test_nothing_of_it_is_imported_while_it_is_off() -> None:
    program = (
        "import sys, odradek.broker.main; from odradek.config.effective import resolve_broker; "
        "resolve_broker([]); print([one for one in sys.modules if 'otlp' in one])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "['odradek.config.otlp']"


BAD: list[tuple[dict[str, str], str]] = [
    ({"odradek.otlp.endpoint": "127.0.0.1:4318"}, "write http://host:port or https://host:port"),
    ({"odradek.otlp.endpoint": "grpc://h:4317"}, "write http://host:port"),
    ({"odradek.otlp.endpoint": "http://h:99999"}, "write http://host:port"),
    ({"odradek.otlp.endpoint": f"http://me:{SECRET}@h"}, "must not hold a user or password"),
    ({"odradek.otlp.headers": f"a={SECRET}"}, "odradek.otlp.endpoint is not"),
    (
        {"odradek.otlp.endpoint": "http://h", "odradek.otlp.headers": f"a={SECRET}%0d%0ab: c"},
        "write name=value",
    ),
    ({"odradek.otlp.endpoint": "http://h", "odradek.otlp.headers": f" ={SECRET}"}, "name=value"),
    ({"odradek.otlp.interval.ms": "99"}, "at least 100"),
]


@pytest.mark.parametrize(("values", "message"), BAD, ids=lambda one: str(one)[:40])
def test_a_bad_setting_is_named_without_its_secret(values: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve_broker([Layer(Source.STATIC_BROKER, values)])
    assert message in str(refused.value) and SECRET not in str(refused.value)


LABELS = st.dictionaries(st.sampled_from(["topic", "client_id", "é"]), st.text(max_size=9))


@given(
    rows=st.lists(st.tuples(LABELS, st.floats()), min_size=1, max_size=30),
    kind=st.sampled_from(["gauge", "counter", "unknown"]),
    text=st.text(max_size=20),
    points_max=st.integers(1, 40),
)
def test_any_value_and_label_comes_as_it_is_in_requests_of_any_size(
    rows: list[tuple[dict[str, str], float]], kind: str, text: str, points_max: int
) -> None:
    family = Metric("a_name", text, kind)
    for labels, value in rows:
        family.add_sample("a_name_total" if kind == "counter" else "a_name", labels, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "_POINTS_MAX", points_max)
        bodies = list(requests([family], ORIGIN, 2_000))
    collector = Collector()
    for body in bodies:
        collector.requests.append(Parse(body, ExportMetricsServiceRequest()))
    found = list(collector.points())
    assert [(labels, repr(point.as_double)) for _, _, labels, point in found] == [
        (labels, repr(value)) for labels, value in rows
    ]
    assert len(bodies) == -(-len(rows) // points_max)
    point: Any
    for name, told_kind, _, point in found:
        assert (name, told_kind) == (
            ("a_name_total", "sum") if kind == "counter" else ("a_name", "gauge")
        )
        assert (point.start_time_unix_nano, point.time_unix_nano) == (10**9, 2 * 10**9)


@pytest.mark.slow
def test_an_installed_broker_pushes_and_stops_while_it_does(start_broker: StartBroker) -> None:
    with collecting() as collector:
        broker: OdradekProcess = start_broker(settings_of(collector))
        wait_until(lambda: len(collector.requests) >= 3, "the broker pushes three times")
        broker.stop()
