"""A log moves to another log directory while it is written and read, and no record is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.broker.composition import Broker
from odradek.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.storage.directory import LogDirectory
from odradek.storage.log import Log
from odradek.storage.partition_directories import list_futures
from odradek.storage.real_files import RealFileSystem
from tests.broker.live import Client, append, batch, client, create, live, on_uvloop, until
from tests.support.requests import fetching

SMALL = {"segment.bytes": str(1 << 20), "index.interval.bytes": "100"}


def directories(path: Path) -> dict[str, str]:
    return {"log.dirs": f"{path}/a,{path}/b"}


def move(topic: str, partition: int, directory: Path) -> AlterReplicaLogDirsRequest:
    wanted = AlterReplicaLogDirTopic(name=topic, partitions=[partition])
    return AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDir(path=str(directory), topics=[wanted])]
    )


def only_log(broker: Broker, name: str = "orders") -> Log:
    topic = broker.topics.get(name)
    log = topic.log(0) if topic else None
    assert log is not None
    return log


def other(broker: Broker, log: Log) -> LogDirectory:
    return next(one for one in broker.directories if one.path != log.directory.parent)


def values(log: Log) -> list[int]:
    return [header.base_offset for header, _ in log.batches(0)]


async def moved(broker: Broker, log: Log, home: LogDirectory) -> None:
    async with client(broker) as one:
        response = await one.ask(move(log.topic, log.partition, home.path), version=2)
        assert [p.error_code for t in response.results for p in t.partitions] == [0]
    await until(lambda: not list(broker.moves.copies()))


async def places(one: Client) -> dict[str, list[tuple[str, int, int, int, bool]]]:
    response = await one.ask(DescribeLogDirsRequest(topics=None), version=5)
    return {
        Path(result.log_dir).name: [
            (t.name, p.partition_index, p.partition_size, p.offset_lag, p.is_future_key)
            for t in result.topics
            for p in t.partitions
        ]
        for result in response.results
    }


@on_uvloop
async def test_a_log_moves_with_all_that_is_in_it(tmp_path: Path) -> None:
    async with live(tmp_path, directories(tmp_path)) as broker, client(broker) as one:
        await create(broker, "orders", configs=SMALL)
        log = only_log(broker)
        for number in range(40):
            append(log, batch(bytes(100_000) + str(number).encode()))
        before, home, size = values(log), other(broker, log), log.size_bytes
        left = log.directory
        assert len(log.segments) > 2
        await moved(broker, log, home)
        assert only_log(broker) is log and log.directory == home.path / "orders-0"
        assert values(log) == before
        assert (await places(one))[home.path.name] == [("orders", 0, size, 0, False)]
        assert not left.exists()
        append(log, batch(b"more"))
        fetched = await one.ask(fetching("orders", 40, wait_ms=1000), version=11)
        assert fetched.responses[0].partitions[0].records
    async with live(tmp_path, directories(tmp_path)) as broker:
        log = only_log(broker)
        assert log.directory == home.path / "orders-0"
        assert values(log) == [*before, 40]
        assert not any(list_futures(RealFileSystem(), one.path) for one in broker.directories)


@on_uvloop
async def test_a_log_moves_while_it_is_appended_to(tmp_path: Path) -> None:
    async with live(tmp_path, directories(tmp_path)) as broker:
        await create(broker, "orders", configs=SMALL)
        log = only_log(broker)
        append(log, *(batch(bytes(50_000)) for _ in range(30)))
        home = other(broker, log)
        await broker.moves.begin(log, home)
        while list(broker.moves.copies()):
            append(log, batch(bytes(20_000), bytes(10)))
            await broker.group_commit.flush([log])
            await asyncio.sleep(0)
        assert log.directory.parent == home.path
        count = log.log_end_offset
        found = [header for header, _ in log.batches(0)]
        assert [one.base_offset for one in found] == [
            0, *(one.base_offset + one.last_offset_delta + 1 for one in found[:-1])
        ]  # fmt: skip
        assert found[-1].base_offset + found[-1].last_offset_delta + 1 == count
        assert count > 30
    async with live(tmp_path, directories(tmp_path)) as broker:
        log = only_log(broker)
        assert log.log_end_offset == count
        assert log.leader_epoch == 0  # a clean stop, and nothing was lost


@on_uvloop
async def test_a_move_is_shown_and_taken_up_again_by_the_next_start(tmp_path: Path) -> None:
    async with live(tmp_path, directories(tmp_path)) as broker, client(broker) as one:
        await create(broker, "orders", configs=SMALL)
        log = only_log(broker)
        append(log, *(batch(bytes(90_000)) for _ in range(20)))
        home, size = other(broker, log), log.size_bytes
        broker.moves._turns = asyncio.Semaphore(0)  # nothing is copied in this life
        await broker.moves.begin(log, home)
        shown = await places(one)
        assert shown[home.path.name] == [("orders", 0, 0, 20, True)]
        assert shown[log.directory.parent.name] == [("orders", 0, size, 0, False)]
        assert len(list_futures(RealFileSystem(), home.path)) == 1
        for _, task in broker.moves._running.values():
            task.cancel()  # as the end of the process does
        broker.moves._running.clear()
    async with live(tmp_path, directories(tmp_path)) as broker:
        await until(lambda: not list(broker.moves.copies()))
        log = only_log(broker)
        assert log.directory == home.path / "orders-0"
        assert log.log_end_offset == 20
        assert not list_futures(RealFileSystem(), home.path)


@on_uvloop
async def test_asking_for_where_it_is_stops_a_move(tmp_path: Path) -> None:
    async with live(tmp_path, directories(tmp_path)) as broker, client(broker) as one:
        await create(broker, "orders", configs=SMALL)
        log = only_log(broker)
        append(log, *(batch(bytes(90_000)) for _ in range(20)))
        here, home = log.directory, other(broker, log)
        await one.ask(move("orders", 0, home.path), version=2)
        response = await one.ask(move("orders", 0, here.parent), version=2)
        assert response.results[0].partitions[0].error_code == 0
        assert not list(broker.moves.copies())
        if log.directory == here:  # it may have been there already
            assert not list_futures(RealFileSystem(), home.path)
        else:
            pytest.fail("the move was over before it was stopped")


@on_uvloop
async def test_a_topic_is_deleted_while_it_moves(tmp_path: Path) -> None:
    async with live(tmp_path, directories(tmp_path)) as broker:
        topic = await create(broker, "orders", configs=SMALL)
        log = only_log(broker)
        append(log, *(batch(bytes(90_000)) for _ in range(50)))
        home = other(broker, log)
        await broker.moves.begin(log, home)
        assert await broker.topics.delete([topic.topic_id]) == [None]
        await until(lambda: not list(broker.moves.copies()))
        assert not any(
            one.name.endswith("-future") or one.name == "orders-0"
            for home in broker.directories
            for one in home.path.iterdir()
        )
