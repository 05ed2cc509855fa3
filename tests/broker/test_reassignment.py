"""Moves of partitions between brokers of different hosts, while clients use them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from odradek.broker.clock import SystemClock
from odradek.broker.composition import Broker
from odradek.broker.topics.states import Partition
from odradek.config.resolution import Layer, Source
from odradek.storage.log import Log
from odradek.storage.real_files import RealFileSystem
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import append, batch, create, on_uvloop, until


def values(path: Path, url: str, number: int) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": "",
        "log.dirs": str(path / f"data-{number}"),
        "node.id": str(number),
        "odradek.catalog.url": url,
        "offsets.topic.num.partitions": "1",
    }


async def start(path: Path, url: str, number: int) -> Broker:
    layer = Layer(Source.STATIC_BROKER, values(path, url, number))
    broker = Broker(layer, RealFileSystem(), SystemClock())
    await broker.start()
    return broker


@asynccontextmanager
async def hosts(path: Path, url: str, count: int = 2) -> AsyncIterator[list[Broker]]:
    """Run brokers in this process, each with log directories of its own."""
    async with AsyncExitStack() as stack:
        brokers = []
        for number in range(1, count + 1):
            broker = await start(path, url, number)
            stack.push_async_callback(broker.stop)
            brokers.append(broker)
        await until(lambda: all(len(one.brokers) == count for one in brokers))
        yield brokers


def partition(broker: Broker) -> Partition:
    topic = broker.topics.get("t")
    assert topic is not None
    return topic.partitions[0]


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
