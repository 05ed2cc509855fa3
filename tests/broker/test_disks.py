"""A disk that fails: who is told, who goes on, and that nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from odradek.broker.composition import Broker
from odradek.broker.topics.states import OfflinePartition
from odradek.protocol.errors import ErrorCode
from odradek.storage.errors import DiskFailure
from odradek.storage.files import FileSystem
from tests.broker import test_fetch, test_produce
from tests.broker.live import batch, client, create, live, on_uvloop, until
from tests.simulation.faultyfs import DISK_FULL, IO_ERROR, FaultyFileSystem
from tests.support.requests import describing, listing_offsets

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


async def produce(broker: Broker, number: int, value: bytes, acks: int = 1) -> tuple[int, int]:
    """Return the error code and the base offset of an append to a partition of `orders`."""
    asked = test_produce.request({("orders", bytes(16)): {number: batch(value)}}, acks=acks)
    (answer,) = await test_produce.send(broker, asked)
    return answer.error_code, answer.base_offset


async def fetch(broker: Broker, number: int) -> tuple[int, list[bytes]]:
    """Return the error code and the values of a partition."""
    asked = test_fetch.request({("orders", bytes(16)): [test_fetch.part(number)]})
    (data,) = test_fetch.parts_of(await test_fetch.send(broker, asked))
    return data.error_code, test_fetch.values(data) if data.records else []


async def end_offset(broker: Broker, number: int) -> tuple[int, int]:
    """Return the error code and the log end offset of a partition."""
    async with client(broker) as one:
        answer = await one.ask(listing_offsets({"orders": [number]}), version=7)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset


def is_online(broker: Broker, number: int) -> Callable[[], bool]:
    def look() -> bool:
        topic = broker.topics.get("orders")
        assert topic is not None
        return not isinstance(topic.partitions[number], OfflinePartition)

    return look


def of(name: str) -> Callable[[Path], bool]:
    return lambda path: name in path.parts


@pytest.mark.slow
@on_uvloop
async def test_a_refused_flush_takes_its_partition_offline_until_the_disk_recovers(
    tmp_path: Path,
) -> None:
    disk = FaultyFileSystem()
    async with live(tmp_path, fs=cast(FileSystem, disk)) as broker:
        await create(broker, "orders", 2)
        assert await produce(broker, 0, b"kept", acks=-1) == (0, 0)
        assert await produce(broker, 0, b"only written") == (0, 1)
        disk.refuse = lambda kind, path: (
            IO_ERROR if kind == "sync" and "orders-0" in path.parts else None
        )
        assert await produce(broker, 0, b"refused", acks=-1) == (STORAGE_ERROR, -1)
        # From now on nothing of the partition is answered, and the other one goes on.
        assert await produce(broker, 0, b"again", acks=1) == (STORAGE_ERROR, -1)
        assert await fetch(broker, 0) == (STORAGE_ERROR, [])
        assert (await end_offset(broker, 0))[0] == STORAGE_ERROR
        assert await produce(broker, 1, b"other", acks=-1) == (0, 0)
        assert await fetch(broker, 1) == (0, [b"other"])
        problems = broker.problems()
        assert any("partition orders-0 is offline" in one for one in problems)
        assert any(f"{tmp_path / 'data'} refused" in one for one in problems)
        async with client(broker) as one:
            (topic,) = (await one.ask(describing("orders"), version=9)).topics
        assert [sorted(part.offline_replicas) for part in topic.partitions] == [[1], []]

        disk.refuse = lambda kind, path: None
        await until(is_online(broker, 0))
        # Whether what was not acknowledged came through is open; what was is there.
        code, values = await fetch(broker, 0)
        assert (code, values[0]) == (0, b"kept")
        code, offset = await produce(broker, 0, b"after", acks=-1)
        assert (code, offset) == (0, len(values))
        assert not any("is offline" in one for one in broker.problems())
    async with live(tmp_path) as broker:
        assert await fetch(broker, 0) == (0, [*values, b"after"])
        assert await fetch(broker, 1) == (0, [b"other"])


@pytest.mark.slow
@on_uvloop
async def test_a_log_that_comes_back_is_written_once_more_before_it_counts_as_durable(
    tmp_path: Path,
) -> None:
    """After a failed fsync Linux takes pages for clean that never reached the disk."""
    disk = FaultyFileSystem()
    async with live(tmp_path, fs=cast(FileSystem, disk)) as broker:
        topic = await create(broker, "orders")
        assert await produce(broker, 0, b"kept", acks=-1) == (0, 0)
        (log,) = topic.logs
        flushed_bytes = log.active.size_bytes
        disk.refuse = lambda kind, path: IO_ERROR if kind == "sync" else None
        assert await produce(broker, 0, b"suspect", acks=-1) == (STORAGE_ERROR, -1)
        writes: list[Path] = []
        syncs: list[int] = []

        def watch(kind: str, path: Path) -> None:
            if path.name.endswith("0.log"):
                writes.extend([path] if kind == "write" else [])
                syncs.extend([len(writes)] if kind == "sync" else [])

        disk.refuse = watch
        await until(is_online(broker, 0))
        assert writes, f"nothing past position {flushed_bytes} was written again"
        assert syncs[-1] == len(writes)
        assert (await fetch(broker, 0))[1] == [b"kept", b"suspect"]


@on_uvloop
async def test_a_full_disk_refuses_appends_and_nothing_else(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    async with live(tmp_path, fs=cast(FileSystem, disk)) as broker:
        await create(broker, "orders", 2)
        assert await produce(broker, 0, b"first", acks=-1) == (0, 0)
        disk.refuse = lambda kind, path: DISK_FULL if kind == "write" else None
        for number in (0, 1):
            assert await produce(broker, number, b"refused") == (STORAGE_ERROR, -1)
        assert await fetch(broker, 0) == (0, [b"first"])
        assert any("No space left on device" in one for one in broker.problems())
        disk.refuse = lambda kind, path: None
        assert await produce(broker, 0, b"second") == (0, 1)
        assert await produce(broker, 1, b"first", acks=-1) == (0, 0)
    async with live(tmp_path) as broker:
        assert await fetch(broker, 0) == (0, [b"first", b"second"])


@on_uvloop
async def test_a_read_error_is_reported_for_its_partition_only(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    async with live(tmp_path, fs=cast(FileSystem, disk)) as broker:
        await create(broker, "orders", 2)
        for number in (0, 1):
            assert await produce(broker, number, b"a") == (0, 0)
        is_bad = of("orders-1")
        disk.refuse = lambda kind, path: IO_ERROR if kind == "read" and is_bad(path) else None
        assert await fetch(broker, 0) == (0, [b"a"])
        assert await fetch(broker, 1) == (STORAGE_ERROR, [])
        assert await produce(broker, 1, b"b") == (0, 1)
        assert broker.problems()
        disk.refuse = lambda kind, path: None
        assert await fetch(broker, 1) == (0, [b"a", b"b"])


@on_uvloop
async def test_a_directory_that_is_not_there_hides_nothing(tmp_path: Path) -> None:
    settings = {"log.dirs": f"{tmp_path / 'one'},{tmp_path / 'two'}"}
    async with live(tmp_path, settings) as broker:
        topic = await create(broker, "orders", 4)
        homes = [log.directory.parent.name for log in topic.logs]
        for number in range(4):
            assert await produce(broker, number, b"%d" % number, acks=-1) == (0, 0)
    lost = [number for number, home in enumerate(homes) if home == "two"]
    assert 0 < len(lost) < 4
    disk = FaultyFileSystem()
    disk.refuse = lambda kind, path: IO_ERROR if "two" in path.parts else None
    async with live(tmp_path, settings, fs=cast(FileSystem, disk)) as broker:
        assert any(f"{tmp_path / 'two'} is offline" in one for one in broker.problems())
        for number in range(4):
            code, values = await fetch(broker, number)
            expected = (STORAGE_ERROR, []) if number in lost else (0, [b"%d" % number])
            assert (code, values) == expected
        assert not list((tmp_path / "one").glob(f"orders-{lost[0]}"))
        disk.refuse = lambda kind, path: None
        await until(is_online(broker, lost[0]))
        for number in range(4):
            assert await fetch(broker, number) == (0, [b"%d" % number])
        assert broker.problems() == []


@on_uvloop
async def test_a_log_that_cannot_be_loaded_keeps_no_other_from_starting(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "orders", 3)
        for number in range(3):
            assert await produce(broker, number, b"a", acks=-1) == (0, 0)
    disk = FaultyFileSystem()
    is_bad = of("orders-1")
    disk.refuse = lambda kind, path: IO_ERROR if kind == "read" and is_bad(path) else None
    async with live(tmp_path, fs=cast(FileSystem, disk)) as broker:
        assert [(await fetch(broker, number))[0] for number in range(3)] == [0, STORAGE_ERROR, 0]
        assert any("partition orders-1 is offline" in one for one in broker.problems())
        disk.refuse = lambda kind, path: None
        await until(is_online(broker, 1))
        assert await fetch(broker, 1) == (0, [b"a"])


@on_uvloop
async def test_one_that_never_came_back_is_recovered_at_the_next_start(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    is_bad = of("orders-0")
    async with live(tmp_path, fs=cast(FileSystem, disk)) as broker:
        await create(broker, "orders", 2)
        assert await produce(broker, 0, b"kept", acks=-1) == (0, 0)
        disk.refuse = lambda kind, path: IO_ERROR if kind == "sync" and is_bad(path) else None
        assert (await produce(broker, 0, b"suspect", acks=-1))[0] == STORAGE_ERROR
    log = tmp_path / "data" / "orders-0" / "00000000000000000000.log"
    # What the disk really had: a torn last batch, in spite of the other logs' clean stop.
    log.write_bytes(log.read_bytes()[:-5])
    async with live(tmp_path) as broker:
        assert await fetch(broker, 0) == (0, [b"kept"])


@pytest.mark.parametrize("settings", [{"flush.messages": "3"}, {"flush.ms": "20"}])
def test_flush_settings_carry_acks_1_to_the_disk(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    @on_uvloop
    async def main() -> None:
        async with live(tmp_path) as broker:
            topic = await create(broker, "orders", configs=settings)
            (log,) = topic.logs
            points = []
            for at in range(4):
                assert await produce(broker, 0, b"%d" % at) == (0, at)
                points.append(log.recovery_point)
            if "flush.messages" in settings:
                assert points == [0, 0, 3, 3]
            await until(lambda: log.recovery_point == (4 if "flush.ms" in settings else 3))

    main()


@on_uvloop
async def test_refused_operations_of_the_broker_itself_are_reported_too(tmp_path: Path) -> None:
    disk = FaultyFileSystem()
    settings = {"offsets.topic.num.partitions": "1"}
    async with live(tmp_path, settings, fs=cast(FileSystem, disk)) as broker:
        await broker.offsets_log.ready()
        topic = await create(broker, "orders", configs={"retention.ms": "1"})
        assert await produce(broker, 0, b"old") == (0, 0)
        assert broker.problems() == []
        disk.refuse = lambda kind, path: DISK_FULL if kind == "write" else None
        with pytest.raises(DiskFailure):
            await broker.offsets_log.append(0, [(b"k", b"v")])
        assert any("__consumer_offsets-0" in one for one in broker.problems())
        # Retention cannot begin the segment that it would leave, and deletes nothing.
        (log,) = topic.logs
        assert await broker.cleaner.deleter.check_all() == 0
        assert log.log_start_offset == 0
        assert any("orders-0" in one for one in broker.problems())
        disk.refuse = lambda kind, path: None
        assert await broker.cleaner.deleter.check_all() > 0
        assert log.log_start_offset == 1
