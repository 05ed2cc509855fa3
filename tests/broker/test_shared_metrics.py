"""/metrics and /api/objects of a broker with an object store; and of one without."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from pytest import approx

from odradek.broker.composition import Broker
from odradek.broker.observability.exposition import objects
from odradek.broker.observability.exposition.objects import object_families
from odradek.broker.observability.exposition.render import render
from odradek.broker.observability.metrics_reference import families as declared
from odradek.broker.web.united.merged_objects import objects as merge
from odradek.broker.web.united.merging import Answers, Json
from odradek.storage.objects.store import StoreUnavailable
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import create, on_uvloop, until
from tests.broker.test_cluster import known_everywhere
from tests.broker.test_metrics import shared, snapshot
from tests.broker.test_shared_segments import (
    EAGER,
    SMALL,
    close_out,
    free,
    keyed,
    records,
    stored,
)
from tests.broker.test_shared_topics import SLOW, cluster, leader_of, produce, served_by_others
from tests.broker.web import get, request, serving

HTTP = {"metrics.listener": "127.0.0.1:0"}
PATIENCE_S = 60.0


async def metrics(broker: Broker) -> dict[str, Metric]:
    status, text = await request(broker, "GET", "/metrics")
    assert status == 200
    return {one.name: one for one in text_string_to_metric_families(text.decode())}


def value(found: dict[str, Metric], name: str, **labels: str) -> float:
    """Return the sum of a family's samples with some labels, without buckets."""
    return sum(
        float(one.value)
        for one in found[f"odradek_{name}"].samples
        if one.name.endswith(("_total", "_count", name)) and labels.items() <= one.labels.items()
    )


async def measure(broker: Broker) -> None:
    """Let a broker look at what is stored now."""
    assert broker.sharing is not None
    broker.sharing.accounting.stored = None
    await broker.sharing.accounting.measure()


def test_a_broker_without_a_store_has_no_such_metric() -> None:
    text = render(snapshot()).decode()
    names = [one.name for one in declared(objects)]
    assert len(names) > 20
    assert not [one for one in names if one.removesuffix("_total") in text]


@on_uvloop
async def test_a_broker_without_a_store_answers_that_there_is_none(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        answer = await get(broker, "/api/objects")
        assert answer.pop("now_ms") > 0
        assert answer == {"store": None}
        assert not (await get(broker, "/api/broker"))["has_object_store"]
        assert broker.sharing is None
        status, text = await request(broker, "GET", "/api/objects?of=me")
        assert (status, b"of is not a parameter" in text) == (400, True)


def test_metrics_and_routes_import_nothing_of_the_store() -> None:
    code = (
        "import sys, odradek.broker.main, odradek.broker.web.server\n"
        "import odradek.broker.observability.metrics_reference\n"
        "print([one for one in sys.modules if 'obstore' in one or '.broker.shared' in one\n"
        "    or 'odradek.storage.objects' in one])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@on_uvloop
async def test_numbers_move_with_what_is_done(tmp_path: Path, catalog_url: str) -> None:
    settings = {**SLOW, **HTTP, "odradek.wal.inline.bytes.max": "1000"}
    async with cluster(tmp_path, catalog_url, 1, settings) as (one,):
        before = await metrics(one)
        assert value(before, "object_store_requests", purpose="probe") == 9
        assert value(before, "object_store_requests") == 9
        assert value(before, "wal_entries") == 0
        await create(one, "t", 1)
        for size in (10, 10, 3000):
            assert not (await produce(one, keyed(b"k", b"x" * size))).error_code
        await measure(one)
        found = await metrics(one)
        assert value(found, "wal_entries", kind="inline") == 2
        assert value(found, "wal_entries", kind="object") == 1
        assert value(found, "wal_bytes", kind="object") > 3000
        assert value(found, "wal_seconds", step="entry") == 3
        assert value(found, "wal_seconds", step="commit") == 3
        assert value(found, "wal_pending_bytes") == 0
        assert value(found, "wal_unstored_bytes") == value(found, "wal_bytes")
        assert value(found, "wal_backlog_entries") == 3
        assert value(found, "object_store_requests", purpose="wal", method="PUT") == 1
        sent = value(found, "object_store_sent_bytes", purpose="wal")
        assert 0 < sent - value(found, "wal_bytes", kind="object") < 200  # index and footer
        assert value(found, "object_store_seconds", purpose="wal") == 1
        stored_bytes = value(found, "object_store_stored_bytes", kind="wal")
        assert stored_bytes == value(found, "wal_bytes", kind="object")
        assert value(found, "object_store_failing_seconds") == 0
        assert value(found, "cache_max_bytes") == 10 << 30
        assert value(found, "wal_pending_max_bytes") == 128 << 20
        assert value(found, "wal_unstored_max_bytes") == 256 << 20
        assert value(found, "shared_obstacles") == 0
        assert len(found["odradek_shared_obstacles"].samples) == 5
        # The probe wrote twice and listed, and read 5 times.
        assert value(found, "object_store_dollars", kind="put") == approx(4 * 0.005 / 1000)
        assert value(found, "object_store_dollars", kind="get") == approx(5 * 0.0004 / 1000)
        assert value(found, "object_store_dollars_per_month", kind="put") > 0
        assert value(found, "object_store_dollars_per_month", kind="get") == 0
        assert value(found, "object_store_dollars_per_month", kind="storage") > 0
        assert value(found, "object_store_dollars_per_month", kind="out") == 0
        shown = await get(one, "/api/objects")
        check(shown, found)
        assert shown["store"]["url"] == f"file://{tmp_path / 'bucket'}"
        assert shown["store"]["trouble"] is None
        assert shown["requests"]["wal"]["per_s"] > 0
        assert (await get(one, "/api/broker"))["has_object_store"]


def check(shown: Json, found: dict[str, Metric]) -> None:
    """Compare the page's numbers with the metrics."""
    for purpose, one in shown["requests"].items():
        for method, count in one["methods"].items():
            assert value(
                found, "object_store_requests", purpose=purpose, method=method
            ) == count
        received = value(found, "object_store_received_bytes", purpose=purpose)
        assert received == one["received_bytes"]
    for kind in ("inline", "object"):
        assert shown["wal"][f"{kind}_entries"] == value(found, "wal_entries", kind=kind)
        assert shown["wal"][f"{kind}_bytes"] == value(found, "wal_bytes", kind=kind)
    assert shown["wal"]["unstored_bytes"] == value(found, "wal_unstored_bytes")
    assert shown["logs"]["opened"] == value(found, "shared_logs_opened")
    assert shown["logs"]["deleted_objects"] == value(found, "garbage_deleted_objects")
    assert shown["cache"]["misses"] == value(found, "cache_reads", result="miss")
    assert shown["cache"]["fetched_bytes"] == value(found, "cache_fetched_bytes")
    assert shown["dollars"]["put"] == value(found, "object_store_dollars", kind="put")


@on_uvloop
async def test_a_takeover_and_cold_reads_are_counted(tmp_path: Path, catalog_url: str) -> None:
    settings = {**EAGER, **HTTP, "odradek.wal.inline.bytes.max": "0"}
    async with cluster(tmp_path, catalog_url, 2, settings) as brokers:
        await create(brokers[0], "t", 1, {**SMALL, "retention.ms": "-1"})
        await known_everywhere(brokers, "t")
        former = leader_of(brokers)
        assert former is not None
        for at in range(10):
            assert not (await produce(former, keyed(b"k%d" % at, b"x" * 900))).error_code
        await stored(former)
        written = await metrics(former)
        assert value(written, "object_store_requests", purpose="wal", method="PUT") == 10
        assert value(written, "object_store_requests", purpose="segments", method="PUT") > 0
        assert value(written, "wal_unstored_bytes") == 0
        first = brokers[0]
        await free(first)
        freed = await metrics(first)
        assert value(freed, "wal_freed_bytes") == value(written, "wal_bytes")
        assert value(freed, "garbage_deleted_objects") >= 10
        assert value(freed, "object_store_requests", purpose="garbage", method="DELETE") > 0
        await measure(first)
        freed = await metrics(first)
        assert value(freed, "object_store_stored_bytes", kind="segments") > 9000
        assert value(freed, "object_store_stored_bytes", kind="wal") == 0
        assert value(freed, "wal_backlog_entries") == 0
        # Only one broker measures what both have.
        other = await metrics(brokers[1])
        assert other["odradek_object_store_stored_bytes"].samples == []
        assert (await get(brokers[1], "/api/objects"))["stored"] is None
        read = await records(former)
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        before = await metrics(leader)
        assert value(before, "shared_logs_opened") == 1
        assert value(before, "shared_logs_opening_seconds") > 0
        assert await records(leader) == read
        after = await metrics(leader)
        for name in ("cache_fetched_bytes", "cache_memory_bytes"):
            assert value(after, name) > value(before, name), name
        for name, labels in (
            ("cache_reads", {"result": "miss"}),
            ("object_store_requests", {"purpose": "reads", "method": "GET"}),
            ("object_store_received_bytes", {"purpose": "reads"}),
            ("object_store_dollars", {"kind": "get"}),
        ):
            assert value(after, name, **labels) > value(before, name, **labels), name
        check(await get(leader, "/api/objects"), after)
        assert await records(leader) == read
        again = await metrics(leader)
        assert value(again, "cache_fetched_bytes") == value(after, "cache_fetched_bytes")
        hits = [value(at, "cache_reads", result="hit") for at in (after, again)]
        assert hits[0] < hits[1]
        membership = former.membership
        assert membership is not None
        membership._tasks[0] = asyncio.ensure_future(membership._heartbeats())
        await until(lambda: former.sharing.facts().counts.sessions_lost)  # type: ignore[union-attr]
        assert value(await metrics(former), "wal_sessions_lost") == 1


@on_uvloop
@pytest.mark.parametrize("way", ["hedged", "slow"])
async def test_a_put_that_hangs_holds_up_no_producer(tmp_path: Path, way: str) -> None:
    settings = {**SLOW, **HTTP, "odradek.wal.inline.bytes.max": "0"}
    other = "wal.slow.bytes.per.second" if way == "hedged" else "object.store.hedged.percent"
    settings[f"odradek.{other}"] = "0"
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    async with cluster(tmp_path, url, 1, settings) as (one,):
        await create(one, "t", 1)
        assert one.sharing is not None
        counting: Any = one.sharing._bucket.store._store
        if way == "hedged":
            counting = counting._store
        create_object, has_hung, is_over = counting.create, False, threading.Event()

        def hang_once(key: str, data: Any) -> None:
            nonlocal has_hung
            if not has_hung:
                has_hung = True
                assert is_over.wait(PATIENCE_S)
            create_object(key, data)

        counting.create = hang_once
        try:
            assert not (await produce(one, keyed(b"k", b"v"))).error_code
            assert has_hung
            assert not is_over.is_set()
        finally:
            is_over.set()
        found, shown = await metrics(one), await get(one, "/api/objects")
        counts = (
            (value(found, "object_store_hedged"), value(found, "wal_slow_entries")),
            (shown["hedged"], shown["wal"]["slow_entries"]),
        )
        assert set(counts) == {(1, 0) if way == "hedged" else (0, 1)}


@on_uvloop
async def test_a_store_that_fails_is_shown_with_its_error(tmp_path: Path) -> None:
    quick = {"odradek.object.store.timeout.ms": "1000"}
    # Without slow entries: the catalog would have the records before the store answers again.
    put = {"odradek.wal.inline.bytes.max": "0", "odradek.wal.slow.bytes.per.second": "0"}
    settings = {**SLOW, **HTTP, **quick, **put}
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    async with cluster(tmp_path, url, 1, settings) as (one,):
        await create(one, "t", 1)
        assert one.sharing is not None
        backend: Any = one.sharing._bucket.store._store._store
        create_object, is_away = backend._store.create, True

        def refuse(key: str, data: Any) -> None:
            if is_away:
                raise StoreUnavailable(f"create {key}: no connection")
            create_object(key, data)

        backend._store.create = refuse
        answer = asyncio.ensure_future(produce(one, keyed(b"k", b"v")))
        await until(lambda: one.sharing.facts().retries > 1)  # type: ignore[union-attr]
        found, shown = await metrics(one), await get(one, "/api/objects")
        assert value(found, "object_store_failing_seconds") > 0
        assert value(found, "object_store_failures", error="StoreUnavailable") > 1
        assert value(found, "object_store_retries") > 1
        assert value(found, "wal_pending_bytes") > 0
        await until(lambda: one.sharing.facts().obstacles["commit"])  # type: ignore[union-attr]
        assert value(await metrics(one), "shared_obstacles", work="commit") == 1
        trouble = shown["store"]["trouble"]
        assert trouble["error"].endswith("no connection")
        assert trouble["failing_since_ms"] <= trouble["at_ms"] <= shown["now_ms"]
        is_away = False
        assert not (await answer).error_code
        found, shown = await metrics(one), await get(one, "/api/objects")
        assert value(found, "object_store_failing_seconds") == 0
        assert value(found, "shared_obstacles", work="commit") == 0
        assert shown["store"]["trouble"]["failing_since_ms"] is None


def test_the_numbers_of_workers_are_added_up() -> None:
    def one(trouble: Json | None, stored: Json | None, methods: dict[str, int]) -> Json:
        return {
            "now_ms": 5,
            "store": {"url": "s3://b", "trouble": trouble},
            "requests": {"wal": {"per_s": 0.5, "methods": methods}},
            "retries": 2,
            "dollars": {"put": 0.25},
            "stored": stored,
        }

    answered = {"error": "late", "at_ms": 9, "failing_since_ms": None}
    failing = {"error": "away", "at_ms": 4, "failing_since_ms": 3}
    first = one(answered, None, {"PUT": 1})
    merged = merge(
        Answers(
            {1: first, 2: one(failing, {"segments": 7}, {"PUT": 2, "HEAD": 1})},
            absent={3: "no answer"},
        )
    )
    assert merged.pop("problems")
    assert merged == {
        "now_ms": 5,
        "store": {"url": "s3://b", "trouble": failing},
        "requests": {"wal": {"per_s": 1.0, "methods": {"PUT": 3, "HEAD": 1}}},
        "retries": 4,
        "dollars": {"put": 0.5},
        "stored": {"segments": 7},
    }
    assert merge(Answers({1: first}))["store"]["trouble"] == answered
    none = {"now_ms": 5, "store": None}
    assert merge(Answers({1: none, 2: none})) == none


def test_each_obstacle_is_a_metric() -> None:
    facts = replace(shared(), obstacles={"commit": False, "store": True, "free": False})
    [found] = [one for one in object_families(facts) if one.name == "odradek_shared_obstacles"]
    assert [(one.labels["work"], one.value) for one in found.samples] == [
        ("commit", 0), ("store", 1), ("free", 0),
    ]  # fmt: skip
