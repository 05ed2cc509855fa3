"""Handovers of partitions between brokers of one host, while the catalog fails on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog.engines import CatalogAway
from odradek.broker.clock import SystemClock
from odradek.broker.composition import Broker
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.metadata.store import TopicRecord
from odradek.broker.topics.states import Partition, RemotePartition, Wanted
from odradek.broker.workers.host import Host
from odradek.broker.workers.role import Role
from odradek.config.resolution import Layer, Source
from odradek.storage.checkpoints import LeftLog
from odradek.storage.errors import DiskFailure
from odradek.storage.log import Log
from odradek.storage.real_files import RealFileSystem
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import append, batch, create, on_uvloop, until
from tests.broker.test_cluster import SLOW, known_everywhere
from tests.broker.test_shared_topics import cluster, leader_of

HandOver = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def two_workers(path: Path, url: str) -> AsyncIterator[tuple[Broker, Broker]]:
    """Run two brokers of one host in this process."""
    fs = RealFileSystem()
    host = Host(fs, [path / "data"], url, None)
    await asyncio.to_thread(host.prepare, [1, 2])
    async with AsyncExitStack() as stack:
        brokers = []
        for number in (1, 2):
            values = {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "metrics.listener": "",
                "log.dirs": str(path / "data"),
                "node.id": str(number),
                "odradek.catalog.url": url,
            }
            static = Layer(Source.STATIC_BROKER, values)
            role = Role(number, None, lambda: None, lambda: None, -1)
            broker = Broker(static, fs, SystemClock(), role)
            await broker.start()
            stack.push_async_callback(broker.stop)
            brokers.append(broker)
        await until(lambda: all(len(one.brokers) == 2 for one in brokers))
        yield brokers[0], brokers[1]
    fs.close()


def refuse(really: HandOver) -> HandOver:
    async def hand_over(*_: object) -> Any:
        raise CatalogAway("refused on purpose")

    return hand_over


def lose_answer(really: HandOver) -> HandOver:
    async def hand_over(*given: object) -> Any:
        await really(*given)
        raise CatalogAway("the answer was lost on purpose")

    return hand_over


def partition(broker: Broker) -> Partition:
    topic = broker.topics.get("t")
    assert topic is not None
    return topic.partitions[0]


async def leader_and_other(brokers: Sequence[Broker]) -> tuple[Broker, Broker]:
    """Create a topic of one partition; return the broker that leads it, and another one."""
    await create(brokers[0], "t", 1)
    await known_everywhere(brokers, "t")
    leader = leader_of(brokers)
    assert leader is not None
    return leader, next(one for one in brokers if one is not leader)


def key_of(broker: Broker) -> tuple[bytes, int]:
    topic = broker.topics.get("t")
    assert topic is not None
    return topic.topic_id, 0


def led_later(record: TopicRecord, broker: Broker) -> TopicRecord:
    """Return a topic whose only partition another broker leads next."""
    (leader,) = record.leaders
    node_id = broker.node_id
    later = replace(leader, node_id=node_id, replica=node_id, epoch=leader.epoch + 1)
    return replace(record, leaders=(later,))


@on_uvloop
async def test_a_broker_that_stops_begins_no_handover(tmp_path: Path, catalog_url: str) -> None:
    """Its connections to the catalog close next."""
    async with two_workers(tmp_path, catalog_url) as (first, second):
        old, new = await leader_and_other((first, second))
        assert old.handovers is not None
        await old.handovers.close()
        await old.handovers.assign({key_of(old): new.node_id})
        assert isinstance(partition(old), Log)
        assert old.handovers._task is None


@pytest.mark.parametrize("failure", [None, refuse, lose_answer])
@on_uvloop
async def test_one_broker_has_the_log_whatever_the_catalog_answers(
    tmp_path: Path, catalog_url: str, failure: Callable[[HandOver], HandOver] | None
) -> None:
    async with two_workers(tmp_path, catalog_url) as (first, second):
        old, new = await leader_and_other((first, second))
        log = partition(old)
        assert isinstance(log, Log)
        append(log, batch(b"a"), batch(b"b"))
        assert old.handovers is not None
        store: Any = old.store
        really = store.change_partitions
        if failure is not None:
            store.change_partitions = failure(really)

        await old.handovers.assign({key_of(old): new.node_id})
        if failure is refuse:
            await until(lambda: log.is_closed)
            await until(lambda: isinstance(partition(old), Log))
            assert not new.topics.leads(*key_of(old))
            store.change_partitions = really
        await until(lambda: isinstance(partition(new), Log))
        moved = partition(new)
        assert isinstance(moved, Log) and moved.log_end_offset == log.log_end_offset
        assert log.is_closed
        assert not [one for one in old.logs() if one.topic == "t"]
        await until(lambda: not old.topics.leads(*key_of(old)))


@on_uvloop
async def test_a_broker_follows_the_leader_of_a_log_that_it_was_about_to_hand_over(
    tmp_path: Path, catalog_url: str
) -> None:
    """It waited for another change, in which the partition got its new leader."""
    async with cluster(tmp_path, catalog_url, 2, SLOW) as brokers:
        old, new = await leader_and_other(brokers)
        assert old.handovers is not None
        log = partition(old)
        assert isinstance(log, Log) and log.is_shared
        topic = old.topics.get("t")
        assert topic is not None
        record = led_later(topic.record, new)
        change = old.changes.run(lambda: old.topics.follow({topic.topic_id: record}, {}))
        await asyncio.gather(change, old.handovers._hand_over({log: new.node_id}))
        assert partition(old) == RemotePartition("t", 0, record.leaders[0])


@on_uvloop
async def test_a_partition_that_was_not_handed_over_is_served_once_the_catalog_answers(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url, 2, SLOW) as brokers:
        old, new = await leader_and_other(brokers)
        assert old.handovers is not None
        log, key = partition(old), key_of(old)
        failures = [CatalogAway("away on purpose")] * 3

        async def left_logs(_: object) -> dict[tuple[bytes, int], LeftLog]:
            if failures:
                raise failures.pop()
            return {}

        async def open_logs(wanted: Sequence[Wanted]) -> Sequence[Partition]:
            return [] if failures else await really_open(wanted)

        old.topics.left_logs = left_logs  # as on a host with workers
        store: Any = old.store
        partitions: Any = old.partitions
        really_open, partitions.open = partitions.open, open_logs
        really = store.change_partitions
        store.change_partitions = refuse(really)
        await old.handovers.assign({key: new.node_id})
        await until(lambda: isinstance(partition(old), Log) and partition(old) is not log)
        assert not failures
        store.change_partitions = really
        await until(lambda: new.topics.leads(*key))


@on_uvloop
async def test_handovers_go_on_after_a_bug(tmp_path: Path, catalog_url: str) -> None:
    async with two_workers(tmp_path, catalog_url) as (first, second):
        old, new = await leader_and_other((first, second))
        handovers: Any = old.handovers
        really, tries = handovers._hand_over, 0

        async def fail_once(given: object) -> int:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise RuntimeError("a bug on purpose")
            return int(await really(given))

        handovers._hand_over = fail_once
        await handovers.assign({key_of(old): new.node_id})
        await until(lambda: tries == 1)
        handovers.look()
        await until(lambda: new.topics.leads(*key_of(old)))


@on_uvloop
async def test_a_target_for_a_topic_that_is_gone_is_ignored(
    tmp_path: Path, catalog_url: str
) -> None:
    async with two_workers(tmp_path, catalog_url) as (first, second):
        assert first.handovers is not None
        await first.handovers.assign({(bytes(range(16)), 0): second.node_id})


@on_uvloop
async def test_a_log_that_others_lead_is_not_taken_offline(
    tmp_path: Path, catalog_url: str
) -> None:
    """Or this broker would open it again, beside its leader."""
    async with two_workers(tmp_path, catalog_url) as (first, second):
        old, new = await leader_and_other((first, second))
        log = partition(old)
        assert isinstance(log, Log) and old.handovers is not None
        await old.handovers.assign({key_of(old): new.node_id})
        await until(lambda: not old.topics.leads(*key_of(old)))
        old.topics.take_offline(log, DiskFailure(log.directory, OSError("late")))
        known = old.topics.get("t")
        assert known is not None and known.other_leader(0) == new.node_id


@on_uvloop
async def test_a_broker_that_has_resigned_opens_nothing_before_it_serves_again(
    tmp_path: Path, catalog_url: str
) -> None:
    """Until then the outcome of a handover may not be known, and the news may be older than it."""
    async with cluster(tmp_path, catalog_url, 2, SLOW) as brokers:
        _, other = await leader_and_other(brokers)
        topic = other.topics.get("t")
        assert topic is not None
        record = led_later(topic.record, other)
        other.topics.resign()
        await other.changes.run(lambda: other.topics.follow({topic.topic_id: record}, {}))
        assert other.partitions.log_of(record, 0) is None
        no_leader = replace(record.leaders[0], node_id=NO_LEADER)
        assert partition(other) == RemotePartition("t", 0, no_leader)
        await other.changes.run(other.topics.restore)
        assert isinstance(partition(other), Log)
