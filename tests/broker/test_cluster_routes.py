"""/api/cluster and the metrics of a cluster, as each broker sees it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from bench.servers.postgresql import PASSWORD, Postgresql
from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.composition import Broker
from odradek.broker.metadata.members import Leader, Member
from odradek.broker.metadata.store import Metadata, TopicRecord
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import PATIENCE_S, create, on_uvloop, until
from tests.broker.test_cluster import QUICK, SLOW, known_everywhere, member
from tests.broker.web import get, request, serving

HTTP = {"metrics.listener": "127.0.0.1:0"}
ABSENT = Member(7, "elsewhere", "a", ())
LOOP_CPU_MAX_S = 0.25


@asynccontextmanager
async def cluster(path: Path, url: str, node_ids: tuple[int, ...]) -> AsyncIterator[list[Broker]]:
    """Run brokers with HTTP, which know each other."""
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(member(path, url, one, {**SLOW, **HTTP}))
            for one in node_ids
        ]
        await until(lambda: all(len(broker.brokers) == len(node_ids) for broker in brokers))
        yield brokers


def rows(shown: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {one["node_id"]: one for one in shown["brokers"]}


async def metrics(broker: Broker) -> dict[str, Metric]:
    status, text = await request(broker, "GET", "/metrics")
    assert status == 200
    return {one.name: one for one in text_string_to_metric_families(text.decode())}


def value(families: dict[str, Metric], name: str) -> float:
    (sample,) = families[name].samples
    return float(sample.value)


@on_uvloop
async def test_partitions_of_other_brokers_are_named_with_their_leaders(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url, (1, 2)) as (one, other):
        await create(one, "t", 2, {"cleanup.policy": "compact"})
        await known_everywhere([one, other], "t")
        topic = one.topics.get("t")
        assert topic is not None
        led = [number for number in range(2) if topic.other_leader(number) is None]
        assert len(led) == 1
        path = "/api/cleaner/plan?topic=t"
        shown = await get(one, f"{path}&partition={led[0]}")
        assert len(shown["plans"]) + shown["nothing_to_clean"] == 1
        for asked in (path, f"{path}&partition={1 - led[0]}"):
            status, text = await request(one, "GET", asked)
            assert status == 421
            assert f"this broker does not lead t-{1 - led[0]} (broker 2)" in text.decode()


@on_uvloop
async def test_a_broker_without_a_catalog_is_a_cluster_by_itself(tmp_path: Path) -> None:
    async with serving(tmp_path, {"broker.rack": "r", "node.id": "4"}) as broker:
        await create(broker, "t", 3)
        shown = await get(broker, "/api/cluster")
        assert shown["catalog"] is shown["session"] is None
        assert (shown["cluster_id"], shown["node_id"]) == (broker.cluster_id, 4)
        assert shown["revision"] == broker.store.revision > 0
        assert (shown["partitions"], shown["without_leader"]) == (3, 0)
        (row,) = shown["brokers"]
        port = broker.server.listeners[0].port
        assert row == {
            "node_id": 4, "rack": "r", "host": broker.brokers.own.host, "leads": 3,
            "endpoints": [
                {"name": "PLAINTEXT", "host": "127.0.0.1", "port": port, "protocol": "PLAINTEXT"}
            ],
            "without_leader": 0, "is_alive": True, "is_this": True,
        }  # fmt: skip
        assert not (await get(broker, "/api/broker"))["has_catalog"]
        families = await metrics(broker)
        assert value(families, "kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert value(families, "kafka_controller_kafkacontroller_activebrokercount") == 1
        assert value(families, "kafka_controller_kafkacontroller_globalpartitioncount") == 3
        assert value(families, "kafka_server_replicamanager_leadercount") == 3
        assert families["odradek_session_suspended"].samples == []


@on_uvloop
async def test_brokers_show_each_other_and_the_partitions_of_one_that_is_away(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url, (1, 2)) as brokers:
        async with member(tmp_path, catalog_url, 3, {**SLOW, **HTTP, "broker.rack": "r"}) as three:
            await until(lambda: all(len(one.brokers) == 3 for one in brokers))
            await create(three, "b", 6)
            await create(three, "a", 3)
            for name in "ab":
                await known_everywhere(brokers, name)
            host, port = three.brokers.own.host, three.server.listeners[0].port
            for one in (*brokers, three):
                shown = await get(one, "/api/cluster")
                found = rows(shown)
                assert [row["leads"] for row in found.values()] == [3, 3, 3]
                assert [id for id, row in found.items() if row["is_this"]] == [one.node_id]
                assert all(row["is_alive"] for row in found.values())
                assert (found[3]["rack"], found[3]["host"]) == ("r", host)
                assert [end["port"] for end in found[3]["endpoints"]] == [port]
                assert (shown["partitions"], shown["without_leader"]) == (9, 0)
        await until(lambda: all(len(one.brokers) == 2 for one in brokers))
        for one in brokers:
            shown = await get(one, "/api/cluster")
            away = rows(shown)[3]
            assert away == {
                "node_id": 3, "rack": None, "host": host, "endpoints": [], "leads": 0,
                "without_leader": 3, "is_alive": False, "is_this": False,
            }  # fmt: skip
            assert shown["without_leader_rows"] == [
                {"topic": "a", "partition": 2, "last_leader": 3},
                {"topic": "b", "partition": 2, "last_leader": 3},
                {"topic": "b", "partition": 5, "last_leader": 3},
            ]
            assert (shown["partitions"], shown["without_leader"]) == (9, 3)
            assert shown["revision"] == brokers[0].store.revision


@on_uvloop
async def test_the_catalog_and_the_session_are_shown_without_secrets(
    tmp_path: Path, catalog_url: str
) -> None:
    settings = {**HTTP, "broker.session.timeout.ms": "60000", "broker.heartbeat.interval.ms": "20"}
    async with member(tmp_path, catalog_url, 1, settings) as one:
        joined = await get(one, "/api/cluster")
        status, body = await request(one, "GET", "/api/cluster")
        assert status == 200 and PASSWORD not in body.decode()
        catalog, session = joined["catalog"], joined["session"]
        engine, _, rest = catalog_url.partition("://")
        assert catalog["engine"] == engine
        assert rest.endswith(catalog["address"].removeprefix(f"{engine}://"))
        assert session["epoch"] == one.store.session_epoch == 1  # type: ignore[union-attr]
        assert session["lease_ms"] == 60_000
        assert 0 < session["lease_left_ms"] <= 60_000
        assert (session["is_suspended"], session["trouble"]) == (False, None)
        assert (await get(one, "/api/broker"))["has_catalog"]
        # Both moments go on, by more than they are rounded.
        later = joined
        async with asyncio.timeout(PATIENCE_S):
            while (
                later["session"]["extended_ms"] < session["extended_ms"] + 50
                or later["catalog"]["answered_ms"] < catalog["answered_ms"] + 50
            ):
                later = await get(one, "/api/cluster")
        assert later["session"]["lease_left_ms"] > 30_000


LEASE = {"broker.session.timeout.ms": "3000"}


@on_uvloop
async def test_a_suspended_broker_shows_that_it_serves_nothing(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    async with (
        member(tmp_path, url, 1, {**QUICK, **HTTP, **LEASE}) as one,
        member(tmp_path, url, 2, {**QUICK, **HTTP, **LEASE}) as two,
    ):
        await until(lambda: len(one.brokers) == len(two.brokers) == 2)
        await create(one, "t", 4)
        await known_everywhere([two], "t")

        async def figures(broker: Broker) -> list[float]:
            families = await metrics(broker)
            controller = "kafka_controller_kafkacontroller_"
            return [
                value(families, "kafka_server_replicamanager_leadercount"),
                value(families, f"{controller}globalpartitioncount"),
                value(families, f"{controller}activebrokercount"),
                value(families, f"{controller}activecontrollercount"),
                value(families, "odradek_session_suspended"),
                0 < value(families, "odradek_session_lease_seconds") <= 3,
            ]

        # On a busy machine a session may end, and begin again.
        async def both_serve() -> bool:
            shown = [await figures(one), await figures(two)]
            return shown == [[2, 4, 2, 1, 0, True], [2, 4, 2, 0, 0, True]]

        await until(both_serve)

        async def hang(lease_ms: int) -> None:
            await asyncio.Event().wait()

        one.store.renew = hang  # type: ignore[union-attr, method-assign]
        await until(lambda: len(two.brokers) == 1)
        await until(lambda: bool(one.problems()))
        shown = await get(one, "/api/cluster")
        assert shown["session"]["is_suspended"] and shown["session"]["lease_left_ms"] == 0
        own = rows(shown)[1]
        assert (own["is_alive"], own["leads"], own["without_leader"]) == (False, 0, 2)
        assert not rows(await get(two, "/api/cluster"))[1]["is_alive"]
        families = await metrics(one)
        assert value(families, "odradek_session_suspended") == 1
        assert value(families, "odradek_session_lease_seconds") == 0
        assert value(families, "kafka_server_replicamanager_leadercount") == 0
        assert value(families, "kafka_controller_kafkacontroller_activecontrollercount") == 0

        async def shown_by_two() -> list[float]:
            families = await metrics(two)
            controller = "kafka_controller_kafkacontroller_"
            return [
                value(families, f"{controller}activebrokercount"),
                value(families, f"{controller}fencedbrokercount"),
                value(families, f"{controller}offlinepartitionscount"),
                value(families, "kafka_server_replicamanager_offlinereplicacount"),
                # The other one has none of it any more, so this one takes its place.
                value(families, f"{controller}activecontrollercount"),
            ]

        # On a busy machine its own session may end, too, and begin again.
        async def is_shown() -> bool:
            return await shown_by_two() == [1, 1, 2, 0, 1]

        await until(is_shown)


@on_uvloop
async def test_metrics_show_that_the_catalog_is_away(
    tmp_path: Path, postgresql: Postgresql, new_database: str
) -> None:
    async with member(tmp_path, new_database, 1, {**SLOW, **HTTP}) as one:
        await create(one, "t")
        before = await metrics(one)
        assert value(before, "odradek_catalog_failures") == 0
        seconds = before["odradek_catalog_seconds"].samples
        counts = {s.labels["kind"]: s.value for s in seconds if s.name.endswith("_count")}
        # It joined and created a topic, and has followed since.
        assert counts["change"] >= 3 and counts["read"] > 0
        revision = "kafka_server_broker_metadata_metrics_last_applied_record_offset"
        assert value(before, revision) == one.store.revision
        postgresql.stop()
        try:
            await until(lambda: bool(one.problems()))
            away_ms = 300

            def is_silent() -> bool:
                assert one.membership is not None
                return one.membership.store.calls.silence_ms > away_ms

            await until(is_silent)
            families = await metrics(one)
            assert value(families, "odradek_catalog_silence_seconds") > away_ms / 1000
            assert value(families, "odradek_catalog_failures") > 0
            assert value(families, "odradek_session_suspended") == 0
            shown = await get(one, "/api/cluster")
            assert "cannot be used" in shown["session"]["trouble"]
            assert PASSWORD not in json.dumps(shown)
            assert shown["now_ms"] - shown["catalog"]["answered_ms"] > away_ms
        finally:
            postgresql.start()
        await until(lambda: not one.problems())
        assert value(await metrics(one), "odradek_catalog_silence_seconds") < 60


@on_uvloop
async def test_changes_that_are_decided_again_are_counted(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    async with cluster(tmp_path, url, (1, 2)) as (one, two):
        async with asyncio.timeout(PATIENCE_S):
            while not value(await metrics(two), "odradek_catalog_conflicts"):
                await asyncio.gather(
                    *(create(broker, f"t{os.urandom(4).hex()}") for broker in (one, two))
                )
        assert value(await metrics(two), "odradek_catalog_failures") == 0


@pytest.mark.slow
@on_uvloop
async def test_a_hundred_thousand_partitions_take_the_loop_little_time(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    await fill(url, topic_count=1_000, partition_count=100)
    async with member(tmp_path, url, 1, {**SLOW, **HTTP}) as one:
        await get(one, "/api/cluster")
        begun_s = time.thread_time()
        status, body = await request(one, "GET", "/api/cluster")
        took_s = time.thread_time() - begun_s
        assert status == 200
        assert took_s < LOOP_CPU_MAX_S
        assert len(body) < 20_000
        shown = json.loads(body)
        assert (shown["partitions"], shown["without_leader"]) == (100_000, 100_000)
        names = [(row["topic"], row["partition"]) for row in shown["without_leader_rows"]]
        assert names == [("t00000", at) for at in range(100)]
        assert rows(shown)[ABSENT.node_id]["without_leader"] == 100_000
        assert rows(shown)[ABSENT.node_id]["host"] == ABSENT.host


async def fill(url: str, topic_count: int, partition_count: int) -> None:
    """Create topics whose broker has left."""
    store = CatalogStore(lambda: open_engine(url), lambda: os.urandom(8).hex())
    await store.prepare(lambda: Metadata("AAAAAAAAAAAAAAAAAAAAAA", (), {}))
    await store.join(ABSENT, lease_ms=60_000)
    await store.load()
    records = [
        TopicRecord(f"t{at:05}", os.urandom(16), partition_count, 1, 0)
        for at in range(topic_count)
    ]
    led = Leader.of(ABSENT)
    await store.create_topics([(one.led_by(led), {}) for one in reversed(records)])
    await store.leave(ABSENT.node_id)
    await store.close()
