"""/metrics and /health: what they say is so, and Prometheus can read it."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from bench.processes import kafka_libs
from broker.composition import Broker
from broker.exposition import render
from broker.metrics import LogRow, Snapshot
from cleaner.desk import Choice
from cleaner.pool import CleanerPool, PoolStatus
from protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.live import append, batch, client, create, live, on_uvloop

HTTP = {"metrics.listener": "127.0.0.1:0"}
IDLE_CLEANER = PoolStatus(1, 1, 0, None, (), (), Choice(0, 0.0, 0, 0, 0), (), ())


def snapshot(**changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "requests": {},
        "malformed_requests": 0,
        "failed_requests": 0,
        "refused_batches": 0,
        "produced_bytes": 0,
        "fetched_bytes": 0,
        "flushes": 0,
        "connection_count": 0,
        "parked_fetch_count": 0,
        "fetch_session_count": 0,
        "fetch_session_partition_count": 0,
        "fetch_session_evictions": 0,
        "logs": [],
        "cleaner": IDLE_CLEANER,
        "offline_directory_count": 0,
        "offline_partition_count": 0,
        "disk_failures": {},
    }
    return Snapshot(**{**values, **changes})


def parse(text: bytes) -> dict[str, Metric]:
    return {one.name: one for one in text_string_to_metric_families(text.decode())}


def value(families: dict[str, Metric], family: str, **labels: str) -> float:
    (sample,) = [one for one in families[family].samples if one.labels == labels]
    found: float = sample.value
    return found


def test_every_family_has_a_sane_name_and_says_what_it_is() -> None:
    families = parse(render(snapshot(requests={"Fetch": 1}, logs=[LogRow("a", 0, 1, 2, 3, 4)])))
    assert len(families) > 15
    for name, family in families.items():
        if name.startswith(("process_", "python_")):
            continue
        assert re.fullmatch(r"(kafka|odradek)(_[a-z]+)+", name), name
        assert family.type in ("counter", "gauge")
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert sample.name == (f"{name}_total" if family.type == "counter" else name)


def test_numbers_are_what_was_counted() -> None:
    status = PoolStatus(2, 1, 3, "it", (), (), Choice(0, 0.25, 1500, 1, 1), (), ())
    families = parse(
        render(
            snapshot(
                requests={"Fetch": 7, "Produce": 2},
                produced_bytes=2**53,
                flushes=5,
                logs=[LogRow("orders", 3, 10, 20, 30, 4)],
                cleaner=status,
            )
        )
    )
    assert value(families, "kafka_network_requests", request="Fetch") == 7
    assert value(families, "kafka_server_bytes_in") == 2**53
    assert value(families, "odradek_flushes") == 5
    for name, expected in (("size_bytes", 10), ("start_offset", 20), ("end_offset", 30)):
        assert value(families, f"kafka_log_{name}", topic="orders", partition="3") == expected
    assert value(families, "kafka_log_num_segments", topic="orders", partition="3") == 4
    assert value(families, "kafka_log_cleaner_dead_thread_count") == 1
    assert value(families, "odradek_cleaner_threads_died") == 3
    assert value(families, "kafka_log_cleaner_manager_max_dirty_percent") == 25
    assert value(families, "kafka_log_cleaner_max_compaction_delay_secs") == 1.5


@on_uvloop
async def test_the_broker_shows_itself_over_http(tmp_path: Path) -> None:
    async with live(tmp_path, HTTP) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        records = batch(b"a", b"b")
        append(topic.partitions[0], records)
        await one.ask(ApiVersionsRequest(), version=0)
        status, text = await get(broker, "/metrics")
        assert status == 200
        families = parse(text)
        assert value(families, "kafka_network_requests", request="ApiVersions") == 1
        assert value(families, "kafka_server_connections") == 1
        assert value(families, "kafka_server_bytes_in") == len(records)
        assert value(families, "kafka_log_end_offset", topic="orders", partition="0") == 2
        assert value(families, "process_resident_memory_bytes") > 0
        assert await health(broker) == (200, {"status": "ok", "problems": []})
        assert (await get(broker, "/nowhere"))[0] == 404


@on_uvloop
async def test_a_broker_with_a_problem_is_not_healthy(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CleanerPool, "problems", lambda _: ["partition a-0 cannot be cleaned"])
        async with live(tmp_path, HTTP) as broker:
            expected = {"status": "failing", "problems": ["partition a-0 cannot be cleaned"]}
            assert await health(broker) == (503, expected)


async def get(broker: Broker, path: str) -> tuple[int, bytes]:
    (listening,) = broker.http_sockets
    host, port = listening.getsockname()
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}{path}") as response,
    ):
        return response.status, await response.read()


async def health(broker: Broker) -> tuple[int, Any]:
    status, text = await get(broker, "/health")
    return status, json.loads(text)


@pytest.mark.kafka
def test_each_gauge_of_kafkas_cleaner_has_its_series() -> None:
    libs = kafka_libs()
    assert libs is not None
    (jar,) = libs.glob("kafka-storage-[0-9]*.jar")
    names = set()
    with zipfile.ZipFile(jar) as classes:
        for name in ("LogCleaner", "LogCleanerManager"):
            found = classes.read(f"org/apache/kafka/storage/internals/log/{name}.class")
            names |= set(re.findall(rb"[a-z-]+-(?:percent|secs|ms|count|bytes)\b", found))
            names |= set(re.findall(rb"DeadThreadCount", found))
    assert len(names) == 9
    families = parse(render(snapshot()))
    for name in (one.decode() for one in names):
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower().replace("-", "_")
        words = words.removeprefix("cleaner_")
        series = {f"kafka_log_cleaner_{words}", f"kafka_log_cleaner_manager_{words}"}
        assert families.keys() & series
