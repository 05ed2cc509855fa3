"""/metrics and /health: what they say is so, and Prometheus can read it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.composition import Broker
from odradek.broker.counters.latency import Times
from odradek.broker.counters.object_requests import ObjectRequests
from odradek.broker.counters.sharing import SharedCounts
from odradek.broker.counters.topics import TopicCounts
from odradek.broker.observability.exposition.cluster_rows import ClusterRow
from odradek.broker.observability.exposition.group_rows import GroupRows
from odradek.broker.observability.exposition.quota_rows import QuotaRows
from odradek.broker.observability.exposition.render import render
from odradek.broker.observability.exposition.snapshot import (
    CleanerRows,
    DiskRows,
    FetchRows,
    LogRow,
    RequestRows,
    Snapshot,
    SpaceRow,
)
from odradek.broker.observability.metrics_reference import all_families, markdown
from odradek.broker.shared.facts import CacheFacts, SharedFacts
from odradek.cleaner.runtime.pool import CleanerPool, PoolStatus
from odradek.cleaner.runtime.progress import IoBytes
from odradek.cleaner.runtime.scheduler import Choice
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.storage.objects.block_cache import CacheCounters
from tests.broker.live import append, batch, client, create, live, on_uvloop
from tests.support.requests import committing, fetching, producing

HTTP = {"metrics.listener": "127.0.0.1:0"}
IDLE_CLEANER = PoolStatus(1, 1, 0, None, (), (), Choice(0, 0.0, 0, 0, 0), (), ())
# Whose text need not say what to do: it is long enough when it says more than the name.
WORDS_MIN = 4


def snapshot(**changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "now_ms": 0,
        "requests": RequestRows({}, {}, [], 0, 0, 0),
        "all_topics": TopicCounts(),
        "topics": {},
        "connections": {},
        "logins": {},
        "certificates": {},
        "authorizations": None,
        "fetches": FetchRows(0, 0, 0, 0),
        "logs": [],
        "topic_count": 0,
        "offline_partition_count": 0,
        "cluster": ClusterRow(0, 0, 0, 0),
        "disks": DiskRows([], {}, {}, 0),
        "cleaner": CleanerRows(IDLE_CLEANER, IoBytes(0, 0), []),
        "groups": GroupRows({}, [], [], 0),
        "transactions": {},
        "problem_count": 0,
        "clients": [],
        "dropped_client_series": 0,
        "quotas": QuotaRows({}, [], {}, {}),
    }
    return Snapshot(**{**values, **changes})


def shared() -> SharedFacts:
    return SharedFacts(
        url="s3://bucket",
        requests=ObjectRequests().by_purpose(),
        rates={},
        retries=0,
        hedged=0,
        trouble=None,
        bill={},
        bill_per_month={},
        stored=None,
        counts=SharedCounts(),
        commits=(Times().counts, 0),
        entries=(Times().counts, 0),
        pending_bytes=0,
        unstored_bytes=0,
        replicas=0,
        leased=0,
        cache=CacheFacts(CacheCounters(), 0, 0, 0),
        pending_bytes_max=0,
        unstored_bytes_max=0,
        obstacles={},
    )


def parse(text: bytes) -> dict[str, Metric]:
    return {one.name: one for one in text_string_to_metric_families(text.decode())}


def value(families: dict[str, Metric], family: str, **labels: str) -> float:
    (sample,) = [one for one in families[family].samples if one.labels == labels]
    found: float = sample.value
    return found


def test_every_family_is_shown_and_says_what_it_is() -> None:
    shown = parse(render(snapshot(topics={"orders": TopicCounts()}, shared=shared())))
    declared = all_families()
    assert {one.name.removesuffix("_total") for one in declared} == {
        name for name in shown if not name.startswith(("process_", "python_"))
    }
    assert len({one.name for one in declared}) == len(declared)
    for one in declared:
        assert re.fullmatch(r"(kafka|odradek)(_[a-z]+)+", one.name), one.name
        assert one.text.endswith("."), one.name
        assert len(one.text.split()) >= WORDS_MIN, one.name
        assert shown[one.name.removesuffix("_total")].type == one.kind


def test_the_page_of_metrics_is_fresh() -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "metrics.md"
    assert page.read_text() == markdown(), "run `make docs`"


def test_numbers_are_what_was_counted() -> None:
    status = PoolStatus(2, 1, 3, "it", (), (), Choice(0, 0.25, 1500, 1, 1), (), ())
    counts = TopicCounts()
    counts.bytes_in = 2**53
    families = parse(
        render(
            snapshot(
                requests=RequestRows({("Fetch", 12): 7, ("Produce", 9): 2}, {}, [], 0, 0, 0),
                all_topics=counts,
                disks=DiskRows([SpaceRow("/d", 50, 20)], {"/d": False, "/e": True}, {}, 5),
                logs=[LogRow("orders", 3, 10, 20, 30, 4)],
                offline_partition_count=1,
                cluster=ClusterRow(9, partition_count=2, leader_count=1, leaderless_count=0),
                cleaner=CleanerRows(status, IoBytes(70, 20), []),
            )
        )
    )
    requests = "kafka_network_requestmetrics_requests"
    assert value(families, requests, request="Fetch", version="12") == 7
    assert value(families, "kafka_server_brokertopicmetrics_bytesin") == 2**53
    assert value(families, "odradek_flushes") == 5
    assert value(families, "odradek_disk_free_bytes", directory="/d") == 20
    assert value(families, "kafka_log_logmanager_logdirectoryoffline", logDirectory="/e") == 1
    assert value(families, "kafka_log_logmanager_offlinelogdirectorycount") == 1
    for name, expected in (("size", 10), ("logstartoffset", 20), ("logendoffset", 30)):
        assert value(families, f"kafka_log_log_{name}", topic="orders", partition="3") == expected
    assert value(families, "kafka_log_log_numlogsegments", topic="orders", partition="3") == 4
    assert value(families, "kafka_server_replicamanager_partitioncount") == 2
    assert value(families, "kafka_server_replicamanager_leadercount") == 1
    assert value(families, "kafka_log_logcleaner_deadthreadcount") == 1
    assert value(families, "odradek_cleaner_threads_died") == 3
    assert value(families, "odradek_cleaner_read_bytes") == 70
    assert value(families, "kafka_log_logcleanermanager_max_dirty_percent") == 25
    assert value(families, "kafka_log_logcleaner_max_compaction_delay_secs") == 1.5


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
        requests = "kafka_network_requestmetrics_requests"
        assert value(families, requests, request="ApiVersions", version="0") == 1
        connections = "kafka_server_socket_server_metrics_connection_count"
        assert value(families, connections, listener="PLAINTEXT") == 1
        for labels in ({}, {"topic": "orders"}):
            counted = "kafka_server_brokertopicmetrics"
            assert value(families, f"{counted}_bytesin", **labels) == len(records)
            assert value(families, f"{counted}_messagesin", **labels) == 2
        assert value(families, "kafka_log_log_logendoffset", topic="orders", partition="0") == 2
        assert value(families, "odradek_disk_free_bytes", directory=str(tmp_path / "data")) > 0
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


@on_uvloop
async def test_errors_are_counted_by_api_and_code(tmp_path: Path) -> None:
    async with live(tmp_path, HTTP) as broker, client(broker) as one:
        await create(broker, "orders")
        await one.ask(producing("orders", batch(b"a"), partition=5), version=9)
        await one.ask(producing("orders", b"no batch at all"), version=9)
        await one.ask(fetching("orders", offset=7), version=11)
        await one.ask(fetching("nowhere"), version=11)
        families = parse((await get(broker, "/metrics"))[1])
        errors = {
            (one.labels["request"], one.labels["error"]): one.value
            for one in families["kafka_network_requestmetrics_errors"].samples
        }
        assert errors == {
            ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
            ("Produce", "INVALID_RECORD"): 1,
            ("Fetch", "OFFSET_OUT_OF_RANGE"): 1,
            ("Fetch", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        }
        for name, count in (("totalproduce", 2), ("failedproduce", 1), ("failedfetch", 0)):
            assert value(families, f"kafka_server_brokertopicmetrics_{name}requests") == count
        assert "nowhere" not in broker.metrics.topics


@on_uvloop
async def test_a_fetch_takes_as_long_as_it_waits(tmp_path: Path) -> None:
    async with live(tmp_path, HTTP) as broker, client(broker) as one:
        await create(broker, "orders")
        wait_ms = 60
        await one.ask(fetching("orders", wait_ms=wait_ms), version=11)
        await one.ask(ApiVersionsRequest(), version=0)
        families = parse((await get(broker, "/metrics"))[1])
        took = {
            (one.name, one.labels["request"]): one.value
            for one in families["odradek_request_seconds"].samples
        }
        assert took["odradek_request_seconds_count", "Fetch"] == 1
        shortest_ms = wait_ms - 1  # timers count whole milliseconds, from one that has begun
        assert took["odradek_request_seconds_sum", "Fetch"] >= shortest_ms / 1000
        assert took["odradek_request_seconds_sum", "ApiVersions"] < wait_ms / 1000
        times = families["kafka_network_requestmetrics_totaltimems"].samples
        (median,) = [
            one.value
            for one in times
            if one.labels == {"request": "Fetch", "quantile": "0.50"}
        ]
        assert median >= shortest_ms / 1.2  # a bucket is 19% wide


@on_uvloop
async def test_requests_that_overlap_are_all_timed(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        await create(broker, "orders")
        requests = [producing("orders", batch(b"a")) for _ in range(5)]
        one.send(*requests, version=9)
        for _ in requests:
            await one.receive()
        assert sum(broker.metrics.times[0].counts) == len(requests)


@on_uvloop
async def test_lag_is_what_a_group_has_still_to_read(tmp_path: Path) -> None:
    async with live(tmp_path, HTTP) as broker, client(broker) as one:
        topic = await create(broker, "orders", 2)
        append(topic.partitions[0], batch(b"a", b"b", b"c"))
        await broker.loading
        await one.ask(committing("readers", {"orders": {0: 1, 1: 0}}), version=8)
        families = parse((await get(broker, "/metrics"))[1])
        first = {"consumergroup": "readers", "topic": "orders", "partition": "0"}
        assert value(families, "kafka_consumergroup_current_offset", **first) == 1
        assert value(families, "kafka_consumergroup_lag", **first) == 2
        assert value(families, "kafka_consumergroup_lag", **{**first, "partition": "1"}) == 0
        assert value(families, "kafka_consumergroup_members", consumergroup="readers") == 0
        count = "kafka_server_group_coordinator_metrics_group_count"
        assert value(families, count, protocol="classic") == 1
        assert value(families, "odradek_group_series_left_out") == 0


@on_uvloop
async def test_the_partitions_shown_of_groups_are_bounded(tmp_path: Path) -> None:
    async with live(tmp_path, {**HTTP, "odradek.group.series.max": "3"}) as broker:
        async with client(broker) as one:
            await create(broker, "orders", 2)
            await broker.loading
            for group in ("b", "c", "a"):
                await one.ask(committing(group, {"orders": {0: 0, 1: 0}}), version=8)
        families = parse((await get(broker, "/metrics"))[1])
        lags = families["kafka_consumergroup_lag"].samples
        assert [one.labels["consumergroup"] for one in lags] == ["a", "a", "b"]
        assert value(families, "odradek_group_series_left_out") == 3


@on_uvloop
async def test_the_counts_of_a_topic_go_with_it(tmp_path: Path) -> None:
    async with live(tmp_path, HTTP) as broker:
        topic = await create(broker, "orders")
        append(topic.partitions[0], batch(b"a"))
        await broker.topics.delete([topic.topic_id])
        families = parse((await get(broker, "/metrics"))[1])
        counted = families["kafka_server_brokertopicmetrics_messagesin"].samples
        assert [(one.labels, one.value) for one in counted] == [({}, 1)]


async def get(broker: Broker, path: str) -> tuple[int, bytes]:
    (listening,) = broker.http.sockets
    host, port = listening.getsockname()
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}{path}") as response,
    ):
        return response.status, await response.read()


async def health(broker: Broker) -> tuple[int, Any]:
    status, text = await get(broker, "/health")
    return status, json.loads(text)
