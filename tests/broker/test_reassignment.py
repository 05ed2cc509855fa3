"""Moves of partitions between brokers of different hosts, while clients use them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.clock import SystemClock
from odradek.broker.composition import Broker
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.reassignment import copies
from odradek.broker.topics.states import OfflinePartition, Partition
from odradek.config.resolution import Layer, Source
from odradek.protocol.batch_records import decode_records
from odradek.storage.errors import DiskFailure
from odradek.storage.log import Log
from odradek.storage.real_files import RealFileSystem
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import append, batch, create, on_uvloop, until
from tests.broker.test_handovers import two_workers


def values(path: Path, url: str, number: int, **more: str) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": "",
        "log.dirs": str(path / f"data-{number}"),
        "node.id": str(number),
        "odradek.catalog.url": url,
        "offsets.topic.num.partitions": "1",
        **{name.replace("_", "."): value for name, value in more.items()},
    }


async def start(path: Path, url: str, number: int, **more: str) -> Broker:
    layer = Layer(Source.STATIC_BROKER, values(path, url, number, **more))
    broker = Broker(layer, RealFileSystem(), SystemClock())
    await broker.start()
    return broker


@asynccontextmanager
async def hosts(
    path: Path, url: str, count: int = 2, **more: str
) -> AsyncIterator[list[Broker]]:
    """Run brokers in this process, each with log directories of its own."""
    async with AsyncExitStack() as stack:
        brokers = []
        for number in range(1, count + 1):
            broker = await start(path, url, number, **more)
            stack.push_async_callback(broker.stop)
            brokers.append(broker)
        await until(lambda: all(len(one.brokers) == count for one in brokers))
        yield brokers


def at(broker: Broker, number: int) -> Partition:
    topic = broker.topics.get("t")
    assert topic is not None
    return topic.partitions[number]


def partition(broker: Broker) -> Partition:
    return at(broker, 0)


async def led(brokers: list[Broker]) -> tuple[Broker, Broker, Log]:
    """Create a topic; return the broker that leads it, another one, and the log."""
    topic = await create(brokers[0], "t", 1)
    await until(lambda: all(one.topics.get("t") is not None for one in brokers))
    old = next(one for one in brokers if one.topics.leads(topic.topic_id, 0))
    new = next(one for one in brokers if one is not old)
    log = partition(old)
    assert isinstance(log, Log)
    return old, new, log


async def moved_to(new: Broker, log: Log) -> Log:
    """Wait until a broker serves a log, and return it."""
    await until(lambda: isinstance(partition(new), Log))
    moved = partition(new)
    assert isinstance(moved, Log) and moved is not log
    return moved


@on_uvloop
async def test_moves_a_log_to_another_host(tmp_path: Path, catalog_url: str) -> None:
    async with hosts(tmp_path, catalog_url) as brokers:
        old, new, log = await led(brokers)
        for number in range(100):
            append(log, batch(f"{number}".encode()))
        assert old.handovers is not None
        await old.handovers.assign({(log.topic_id, 0): new.node_id})
        moved = await moved_to(new, log)
        assert [one.base_offset for one, _ in moved.batches(0)] == list(range(100))
        await until(lambda: not log.directory.exists())


@on_uvloop
async def test_a_local_log_never_moves_into_the_cache_of_shared_ones(
    tmp_path: Path, catalog_url: str
) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    settings = {"odradek_object_store_url": f"file://{bucket}", "odradek_storage": "local"}
    async with hosts(tmp_path, catalog_url, 2, **settings) as brokers:
        await create(brokers[0], "others", 2)
        old, new, log = await led(brokers)
        append(log, batch(b"one"))
        # The directory of logs has more of them than the cache.
        await until(lambda: sum(not one.is_shared for one in new.logs()) == 1)
        await assign(old, log, new.node_id)
        moved = await moved_to(new, log)
        assert moved.directory.parent == tmp_path / f"data-{new.node_id}"
        assert offsets(moved) == [0]


async def assign(old: Broker, log: Log, node_id: int) -> None:
    assert old.handovers is not None
    await old.handovers.assign({(log.topic_id, log.partition): node_id})


def copies_on(path: Path, number: int) -> list[Path]:
    return list((path / f"data-{number}").glob("t-0.*-future"))


def offsets(log: Log) -> list[int]:
    return [header.base_offset for header, _ in log.batches(0)]


def hold(old: Broker) -> None:
    """Let a broker hand nothing over until release()."""
    assert old.handovers is not None
    old.handovers._due = dict  # type: ignore[method-assign]


def release(old: Broker) -> None:
    assert old.handovers is not None
    del old.handovers._due
    old.handovers.look()


async def copied(new: Broker, end_offset: int) -> None:
    """Wait until the copy of a broker has an end offset."""
    assert new.copies is not None
    copies = new.copies
    await until(lambda: [one.end_offset for _, _, one in copies.copied()] == [end_offset])


@on_uvloop
async def test_a_move_goes_on_after_a_restart(tmp_path: Path, catalog_url: str) -> None:
    async with AsyncExitStack() as stack:
        brokers = await stack.enter_async_context(hosts(tmp_path, catalog_url, 3))
        topic = await create(brokers[0], "t", 1)
        await until(lambda: all(one.topics.get("t") is not None for one in brokers))
        old = next(one for one in brokers if one.topics.leads(topic.topic_id, 0))
        log = partition(old)
        assert isinstance(log, Log)
        append(log, batch(b"before"))
        hold(old)
        path, url = tmp_path, catalog_url
        new = await start(path, url, 4)
        await assign(old, log, 4)
        await copied(new, 1)
        await new.stop()
        (copy,) = copies_on(tmp_path, 4)
        append(log, batch(b"meanwhile"))
        new = await start(path, url, 4)
        stack.push_async_callback(new.stop)
        await copied(new, 2)
        assert copies_on(tmp_path, 4) == [copy]
        release(old)
        moved = await moved_to(new, log)
        assert offsets(moved) == [0, 1] and not copies_on(tmp_path, 4)


@on_uvloop
async def test_a_move_that_is_cancelled_leaves_nothing(tmp_path: Path, catalog_url: str) -> None:
    async with hosts(tmp_path, catalog_url) as brokers:
        old, new, log = await led(brokers)
        hold(old)
        append(log, batch(b"a"))
        await assign(old, log, new.node_id)
        await copied(new, 1)
        await assign(old, log, NO_LEADER)
        await until(lambda: not copies_on(tmp_path, new.node_id))
        release(old)
        append(log, batch(b"b"))
        assert partition(old) is log and not log.is_closed


@on_uvloop
async def test_a_copy_is_the_log_after_a_crash_of_the_new_leader(
    tmp_path: Path, catalog_url: str
) -> None:
    """It ends when it leads the partition, and before the copy has the log's name."""
    async with hosts(tmp_path, catalog_url) as brokers:
        old, _, log = await led(brokers)
        append(log, batch(b"a"), batch(b"b"))
        new = await start(tmp_path, catalog_url, 3)

        def fail(*_: object) -> Any:
            raise DiskFailure(tmp_path, OSError("on purpose"))

        new.partitions.take_copies = fail
        await assign(old, log, 3)
        await until(lambda: isinstance(partition(new), OfflinePartition))
        await new.stop()
        assert len(copies_on(tmp_path, 3)) == 1
        new = await start(tmp_path, catalog_url, 3)
        try:
            moved = partition(new)
            assert isinstance(moved, Log) and offsets(moved) == [0, 1]
        finally:
            await new.stop()


@on_uvloop
async def test_files_of_a_moved_log_are_removed_at_the_next_start(
    tmp_path: Path, catalog_url: str
) -> None:
    async with hosts(tmp_path, catalog_url) as brokers:
        old = await start(tmp_path, catalog_url, 3)
        try:
            topic = await create(old, "t", 3)
            await until(lambda: all(one.topics.get("t") is not None for one in brokers))
            (log,) = [one for one in old.logs() if one.topic == "t"]
            assert old.handovers is not None

            async def crash(gone: object) -> None:
                pass

            old.handovers._closing.remove = crash  # type: ignore[method-assign, assignment]
            await assign(old, log, 1)
            await until(lambda: brokers[0].topics.leads(topic.topic_id, log.partition))
        finally:
            await old.stop()
        assert log.directory.exists()
        old = await start(tmp_path, catalog_url, 3)
        await old.stop()
        assert not log.directory.exists()


@on_uvloop
async def test_a_copy_that_diverges_is_begun_again(tmp_path: Path, catalog_url: str) -> None:
    """The leader has lost its last batches, which another host has copied."""
    async with hosts(tmp_path, catalog_url) as brokers:
        old = await start(tmp_path, catalog_url, 3)
        topic = await create(old, "t", 3)
        await until(lambda: all(one.topics.get("t") is not None for one in brokers))
        (log,) = [one for one in old.logs() if one.topic == "t"]
        hold(old)
        append(log, batch(b"kept"), batch(b"lost"))
        await assign(old, log, 1)
        await copied(brokers[0], 2)
        (copy,) = list((tmp_path / "data-1").glob("t-*-future"))
        segment = log.active.log.path
        size_bytes = log.read(1, 1, at_least_one=True)
        assert size_bytes is not None
        await old.stop()
        os.truncate(segment, size_bytes.position)
        (tmp_path / "data-3" / ".kafka_cleanshutdown").unlink()
        old = await start(tmp_path, catalog_url, 3)
        try:
            hold(old)
            (log,) = [one for one in old.logs() if one.topic == "t"]
            assert log.log_end_offset == 1 and log.topic_id == topic.topic_id
            append(log, batch(b"other"), batch(b"more"))
            await copied(brokers[0], 3)
            assert not copy.exists()
            release(old)
            await until(lambda: brokers[0].topics.leads(topic.topic_id, log.partition))
            await until(lambda: len([x for x in brokers[0].logs() if x.topic == "t"]) == 2)
            (moved,) = [
                one
                for one in brokers[0].logs()
                if one.topic == "t" and one.partition == log.partition
            ]
            batches = [data for _, data in moved.batches(0)]
            values = [record.value for data in batches for record in decode_records(data)]
            assert values == [b"kept", b"other", b"more"]
        finally:
            await old.stop()


@on_uvloop
async def test_a_log_moves_to_workers_and_away_again(tmp_path: Path, catalog_url: str) -> None:
    """Workers of one host share its directories: none of them has the log afterwards."""
    async with two_workers(tmp_path, catalog_url) as workers, AsyncExitStack() as stack:
        other = await start(tmp_path, catalog_url, 3)
        stack.push_async_callback(other.stop)
        brokers = [*workers, other]
        await until(lambda: all(len(one.brokers) == 3 for one in brokers))
        topic = await create(other, "t", 3)
        await until(lambda: all(one.topics.get("t") is not None for one in brokers))
        (log,) = [one for one in other.logs() if one.topic == "t"]
        append(log, batch(b"a"), batch(b"b"))
        for target in (workers[1], other, workers[0]):
            key = topic.topic_id, log.partition
            leader = next(one for one in brokers if one.topics.leads(*key))
            assert leader.handovers is not None
            await leader.handovers.assign({key: target.node_id})
            await until(lambda one=target, key=key: one.topics.leads(*key))
            await until(lambda one=target: isinstance(at(one, log.partition), Log))
            moved = at(target, log.partition)
            assert isinstance(moved, Log) and offsets(moved) == list(range(moved.log_end_offset))
            append(moved, batch(b"more"))
            have = [one for one in brokers if at(one, log.partition) is not moved]
            assert len(have) == 2
        assert moved.log_end_offset == 5
        await until(lambda: not log.directory.exists())


@on_uvloop
async def test_a_copy_that_does_not_come_on_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_PATIENCE_S", 0.5)
    async with hosts(tmp_path, f"sqlite://{tmp_path / 'catalog.db'}") as brokers:
        old, new, log = await led(brokers)
        followers, old.followers = old.followers, None  # it lets nobody copy
        await assign(old, log, new.node_id)
        await until(new.problems)
        (problem,) = new.problems()
        assert problem.startswith(f"cannot copy t-0 from broker {old.node_id}: error ")
        old.followers = followers
        await moved_to(new, log)
        assert not new.problems()
