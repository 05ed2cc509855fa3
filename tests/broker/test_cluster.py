"""Several brokers with one catalog: clients find in them what they find in a Kafka cluster."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.servers.postgresql import Postgresql
from odradek.broker.composition import Broker
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.members import NO_LEADER, Leader
from odradek.broker.metadata.store import Resource, ResourceType, TopicRecord
from odradek.broker.orders.java import partition_for
from odradek.broker.topics.plans import NewTopic
from odradek.broker.topics.topic import Topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.storage.errors import StorageError
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import batch, client, create, live, on_uvloop, until
from tests.support.requests import committing, fetching, producing

NODE_IDS = (1, 2, 3)
QUICK = {"broker.session.timeout.ms": "600", "broker.heartbeat.interval.ms": "50"}
SLOW = {"broker.session.timeout.ms": "60000"}


@asynccontextmanager
async def member(
    path: Path, url: str, node_id: int, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Broker]:
    """Run a broker of a cluster, with a directory of its own."""
    own = {"node.id": str(node_id), "odradek.catalog.url": url, **(settings or SLOW)}
    async with live(path / str(node_id), own) as broker:
        yield broker


@asynccontextmanager
async def cluster(
    path: Path, url: str, settings: Mapping[str, str] | None = None
) -> AsyncIterator[list[Broker]]:
    """Run three brokers, which know each other."""
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(member(path, url, one, settings)) for one in NODE_IDS
        ]
        await until(lambda: all(len(broker.brokers) == len(NODE_IDS) for broker in brokers))
        yield brokers


@asynccontextmanager
async def silent(broker: Broker) -> AsyncIterator[None]:
    """Keep a broker from renewing its session; it may join again afterwards."""
    membership = broker.membership
    assert membership is not None
    store: Any = broker.store
    renew = store.renew

    async def hang(lease_ms: int) -> None:
        await asyncio.Event().wait()

    store.renew = hang
    yield
    store.renew = renew
    membership._tasks[0].cancel()
    membership._tasks[0] = asyncio.ensure_future(membership._heartbeats())


@asynccontextmanager
async def without_news(broker: Broker) -> AsyncIterator[None]:
    """Keep a broker from following the others: it reads another thing for all that time."""
    store: Any = broker.store
    is_over = threading.Event()
    reading = asyncio.create_task(store._side.read(lambda _: is_over.wait()))
    try:
        yield
    finally:
        is_over.set()
        await reading


async def known_everywhere(brokers: Iterable[Broker], name: str) -> None:
    await until(lambda: all(broker.topics.get(name) is not None for broker in brokers))


async def create_at(one: Broker, others: Sequence[Broker], name: str, count: int) -> Topic:
    """Create a topic once a broker knows the others, and wait until they know the topic."""
    await until(lambda: len(one.brokers) == 1 + len(others))
    topic = await create(one, name, count)
    await known_everywhere(others, name)
    return topic


@on_uvloop
async def test_others_take_turns_while_a_broker_follows_the_change_of_many_topics(
    tmp_path: Path,
) -> None:
    count = 200
    async with member(tmp_path, f"sqlite://{tmp_path / 'c.db'}", 1) as broker:
        elsewhere = Leader(2, 0, "another-host", 2)
        records = [
            TopicRecord(f"t{one}", one.to_bytes(16), 3, 1, 0).led_by(elsewhere)
            for one in range(2, 2 + count)
        ]
        turns, is_over = 0, False

        def take_a_turn() -> None:
            nonlocal turns
            turns += 1
            if not is_over:
                asyncio.get_running_loop().call_soon(take_a_turn)

        take_a_turn()
        for epoch in range(2):  # they are new, then they have another leader epoch
            leader, before = replace(elsewhere, epoch=epoch), turns
            changed = {one.topic_id: one.led_by(leader) for one in records}
            await broker.topics.follow(changed, {})
            assert turns - before > count // 20
            assert {one.record.leaders for one in broker.topics} == {3 * (leader,)}
        is_over = True


async def described(broker: Broker, name: str) -> dict[int, tuple[int, int]]:
    """Return the leader and the epoch of each partition of a topic, as a broker answers."""
    async with client(broker) as one:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        (topic,) = (await one.ask(asked, version=12)).topics
        return {p.partition_index: (p.leader_id, p.leader_epoch) for p in topic.partitions}


@on_uvloop
async def test_each_broker_describes_the_same_cluster(tmp_path: Path, catalog_url: str) -> None:
    async with cluster(tmp_path, catalog_url) as brokers:
        await create(brokers[1], "t", 6)
        await known_everywhere(brokers, "t")
        ports = {one.node_id: one.server.listeners[0].port for one in brokers}
        for broker in brokers:
            async with client(broker) as one:
                asked = DescribeClusterRequest(include_cluster_authorized_operations=False)
                answer = await one.ask(asked, version=1)
                assert {found.broker_id: found.port for found in answer.brokers} == ports
                assert answer.cluster_id == brokers[0].cluster_id
            assert await described(broker, "t") == {
                number: (1 + number % 3, 0) for number in range(6)
            }


@on_uvloop
async def test_leaders_append_and_others_name_them(tmp_path: Path, catalog_url: str) -> None:
    async with cluster(tmp_path, catalog_url) as brokers:
        topic = await create(brokers[0], "t", 3)
        await known_everywhere(brokers, "t")
        ports = {one.node_id: one.server.listeners[0].port for one in brokers}
        for broker in brokers:
            async with client(broker) as one:
                for number in range(3):
                    leader = number + 1
                    asked = producing("t", batch(b"a"), partition=number)
                    answer = await one.ask(asked, version=10)
                    ((found,),) = (part.partition_responses for part in answer.responses)
                    if leader == broker.node_id:
                        assert not found.error_code
                        continue
                    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                    assert found.current_leader.leader_id == leader
                    assert {n.node_id: n.port for n in answer.node_endpoints} == {
                        leader: ports[leader]
                    }
                    asked_for = fetching("", topic_id=topic.topic_id, partition=number)
                    read = await one.ask(asked_for, version=16)
                    ((data,),) = (part.partitions for part in read.responses)
                    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                    assert data.current_leader.leader_id == leader
                    assert [n.port for n in read.node_endpoints] == [ports[leader]]
        for broker in brokers:
            (log,) = broker.topics.by_id(topic.topic_id).logs  # type: ignore[union-attr]
            assert log.log_end_offset == 1


@on_uvloop
async def test_changes_made_at_one_broker_are_in_force_at_all(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url) as brokers:
        one, two, three = brokers
        await create(one, "t", 3)
        await known_everywhere(brokers, "t")
        assert await two.topics.alter_configs(
            {"t": lambda present: {**present, "retention.ms": "7"}}
        ) == {"t": None}
        await three.configs.alter(
            "", lambda present: {**present, "log.cleaner.threads": "2"}, validate_only=False
        )
        group = Resource(ResourceType.GROUP, "g")
        await three.configs.resources.alter(
            {group: lambda _: {"consumer.session.timeout.ms": "50000"}}, validate_only=False
        )
        await until(lambda: all(b.topics.get("t").config.retention_ms == 7 for b in brokers))  # type: ignore[union-attr]
        await until(lambda: all(b.config.log_cleaner_threads == 2 for b in brokers))
        await until(lambda: all(b.configs.resources.has_some(group) for b in brokers))
        topic_id = one.topics.get("t").topic_id  # type: ignore[union-attr]
        await two.topics.delete([topic_id])
        await until(lambda: not any(b.topics.get("t") or list(b.logs()) for b in brokers))
        again = await create(three, "t", 3)  # the name is free
        await until(lambda: all(b.topics.by_id(again.topic_id) for b in brokers))


@on_uvloop
async def test_topics_created_at_all_brokers_at_once_are_there_once(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url) as brokers:
        wanted = [NewTopic(f"t{number}", 2) for number in range(5)]
        outcomes = await asyncio.gather(
            *(broker.topics.create([one]) for one in wanted for broker in brokers)
        )
        made = [one for (one,) in outcomes if not isinstance(one, Exception)]
        assert len(made) == len(wanted)
        for one in wanted:
            await known_everywhere(brokers, one.name)
        ids = {b.topics.get(one.name).topic_id for b in brokers for one in wanted}  # type: ignore[union-attr]
        assert len(ids) == len(wanted)
        led = [len(list(broker.logs())) for broker in brokers]
        assert sum(led) == 10
        assert max(led) - min(led) <= 1


@on_uvloop
async def test_a_group_has_its_coordinator_at_the_leader_of_its_partition(
    tmp_path: Path, catalog_url: str
) -> None:
    settings = {"offsets.topic.num.partitions": "6", **SLOW}
    async with cluster(tmp_path, catalog_url, settings) as brokers:
        await create(brokers[0], "t", 3)
        await known_everywhere(brokers, "t")
        by_id = {broker.node_id: broker for broker in brokers}
        leaders = set()
        for number in range(12):
            group = f"group-{number}"
            found: set[tuple[int, int]] = set()
            for broker in brokers:
                async with client(broker) as one:
                    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
                    (at,) = (await one.ask(asked, version=4)).coordinators
                    assert not at.error_code
                    found.add((at.node_id, at.port))
            ((leader, port),) = found
            leaders.add(leader)
            assert port == by_id[leader].server.listeners[0].port
            await known_everywhere(brokers, "__consumer_offsets")
            for broker in brokers:
                async with client(broker) as one:
                    code = await _commit(one, group, number)
                    while code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                        code = await _commit(one, group, number)
                    expected = 0 if broker.node_id == leader else ErrorCode.NOT_COORDINATOR
                    assert code == expected
            shard = by_id[leader].groups.runtime.machine_of(group)
            assert not isinstance(shard, ErrorCode)
            assert partition_for(group, 6) in range(6)
        assert leaders == set(NODE_IDS)


async def _commit(one: Any, group: str, offset: int) -> int:
    answer = await one.ask(committing(group, {"t": {0: offset}}), version=8)
    return int(answer.topics[0].partitions[0].error_code)


@on_uvloop
async def test_a_broker_that_comes_back_leads_its_partitions_under_a_later_epoch(
    tmp_path: Path, catalog_url: str
) -> None:
    async with member(tmp_path, catalog_url, 1) as one:
        async with member(tmp_path, catalog_url, 2) as two:
            await create_at(one, [two], "t", 2)
            async with client(two) as there:
                answer = await there.ask(producing("t", batch(b"a"), partition=1), version=9)
                assert not answer.responses[0].partition_responses[0].error_code
        await until(lambda: len(one.brokers) == 1)
        assert await described(one, "t") == {0: (1, 0), 1: (NO_LEADER, 1)}
        async with member(tmp_path, catalog_url, 2) as two:
            await until(lambda: one.topics.get("t").record.leaders[1].node_id == 2)  # type: ignore[union-attr]
            for broker in (one, two):
                assert await described(broker, "t") == {0: (1, 0), 1: (2, 1)}
            (log,) = two.logs()
            assert (log.log_end_offset, log.leader_epoch) == (1, 1)


@on_uvloop
async def test_a_broker_deletes_the_topics_that_were_deleted_while_it_was_away(
    tmp_path: Path, catalog_url: str
) -> None:
    async with member(tmp_path, catalog_url, 1) as one:
        async with member(tmp_path, catalog_url, 2) as two:
            old = await create_at(one, [two], "t", 2)
        data = tmp_path / "2" / "data"
        assert (data / "t-1").exists()
        await one.topics.delete([old.topic_id])
        await create(one, "t", 4)  # all of it is here
        async with member(tmp_path, catalog_url, 2) as two:
            assert not two.partitions.strays
            await create(two, "u", 4)
            await until(lambda: one.topics.get("u") is not None)
        assert not list(data.glob("t-?"))  # one is renamed, to be removed later
    async with member(tmp_path, catalog_url, 2) as two:
        assert (await two.store.load()).removals == ()


@on_uvloop
async def test_a_silent_broker_is_closed_out_and_joins_again(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    async with (
        member(tmp_path, url, 1, QUICK) as one,
        member(tmp_path, url, 2, QUICK) as two,
    ):
        await create_at(one, [two], "t", 2)
        async with silent(two):
            await until(lambda: one.topics.get("t").record.leaders[1].node_id == NO_LEADER)  # type: ignore[union-attr]
            with pytest.raises(StorageError):
                two.topics.get("t").log(1)  # type: ignore[union-attr]
            assert any("session" in problem for problem in two.problems())
        await until(lambda: one.topics.get("t").record.leaders[1].node_id == 2)  # type: ignore[union-attr]
        await until(lambda: not two.problems())
        log = two.topics.get("t").log(1)  # type: ignore[union-attr]
        assert log is not None
        assert log.leader_epoch == one.topics.get("t").record.leaders[1].epoch == 1  # type: ignore[union-attr]


@on_uvloop
async def test_brokers_go_on_without_their_catalog_until_their_sessions_end(
    tmp_path: Path, postgresql: Postgresql, new_database: str
) -> None:
    settings = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "100"}
    async with member(tmp_path, new_database, 1, settings) as one:
        await create(one, "t")
        async with client(one) as there:
            postgresql.stop()
            try:
                await until(lambda: any("catalog" in problem for problem in one.problems()))
                answer = await there.ask(producing("t", batch(b"a")), version=9)
                assert not answer.responses[0].partition_responses[0].error_code
                (refused,) = await one.topics.create([NewTopic("u")])
                assert isinstance(refused, Exception)
                await until(lambda: any("nothing is served" in text for text in one.problems()))
                answer = await there.ask(producing("t", batch(b"b")), version=9)
                code = answer.responses[0].partition_responses[0].error_code
                assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            finally:
                postgresql.start()
            await until(lambda: not one.problems())
            answer = await there.ask(producing("t", batch(b"c")), version=9)
            assert not answer.responses[0].partition_responses[0].error_code
            await create(one, "u")


@on_uvloop
async def test_a_single_broker_moves_into_a_cluster_with_its_data(
    tmp_path: Path, catalog_url: str
) -> None:
    path = tmp_path / "1"
    async with live(path, {"node.id": "1"}) as alone:
        await create(alone, "t", 2, {"retention.ms": "5"})
        await alone.producer_ids.take()
        async with client(alone) as there:
            answer = await there.ask(producing("t", batch(b"a"), partition=1), version=9)
            assert not answer.responses[0].partition_responses[0].error_code
        cluster_id, topic_id = alone.cluster_id, alone.topics.get("t").topic_id  # type: ignore[union-attr]
    for _ in range(2):
        async with member(tmp_path, catalog_url, 1) as one:
            assert one.cluster_id == cluster_id
            topic = one.topics.by_id(topic_id)
            assert topic is not None
            assert topic.overrides == {"retention.ms": "5"}
            assert [log.log_end_offset for log in topic.logs] == [0, 1]
            assert await one.producer_ids.take() >= 1000
    with pytest.raises(Exception, match=r"is in a catalog: set odradek.catalog.url"):
        async with live(path, {"node.id": "1"}):
            raise AssertionError("it started")


@on_uvloop
async def test_log_directories_of_another_cluster_are_refused(tmp_path: Path) -> None:
    async with live(tmp_path / "2", {"node.id": "2"}) as other:
        await create(other, "t")
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    async with member(tmp_path, url, 1):
        with pytest.raises(MetadataError, match=r"that of another: choose an empty database"):
            async with member(tmp_path, url, 2):
                raise AssertionError("it started")
    assert (tmp_path / "2" / "data" / "odradek.db").exists()
    with sqlite3.connect(tmp_path / "catalog.db") as database:
        assert list(database.execute("SELECT name FROM topic")) == []
    database.close()
