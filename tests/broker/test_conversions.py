"""A local topic becomes a shared one, and back: while it is in use, and whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from odradek.broker.composition import Broker
from odradek.broker.metadata.members import ANY_HOST
from odradek.broker.metadata.statements import Connection
from odradek.broker.reassignment import conversions
from odradek.broker.reassignment.closing import Closing
from odradek.broker.reassignment.local_copy import LocalCopy
from odradek.broker.shared.bucket_copy import BucketCopy
from odradek.broker.topics.states import Wanted
from odradek.config.object_store import STORAGE
from odradek.storage.errors import BucketFailure
from odradek.storage.log import Log
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import PATIENCE_S, client, create, on_uvloop, until
from tests.broker.test_cluster import SLOW, known_everywhere, member
from tests.broker.test_shared_segments import bounds, keyed, log_of, records
from tests.broker.test_shared_topics import (
    by_producer,
    close_out,
    leader_of,
    produce,
    served_by_others,
)
from tests.support.requests import altering

SMALL = {"internal.segment.bytes": "1000", "retention.ms": "-1", "file.delete.delay.ms": "0"}


@asynccontextmanager
async def cluster(path: Path, url: str, count: int = 2) -> AsyncIterator[list[Broker]]:
    """Run brokers with a bucket; new topics are local."""
    (path / "bucket").mkdir(exist_ok=True)
    settings = {
        "odradek.object.store.url": f"file://{path / 'bucket'}",
        "log.cleaner.backoff.ms": "50",
        "file.delete.delay.ms": "0",
        **SLOW,
    }
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(member(path, url, one + 1, settings))
            for one in range(count)
        ]
        await until(lambda: all(len(one.brokers) == count for one in brokers))
        yield brokers


async def begin(
    brokers: Sequence[Broker], storage: str = "local", configs: dict[str, str] | None = None
) -> Broker:
    """Create a topic; return its leader."""
    await create(brokers[0], "t", 1, {**SMALL, "odradek.storage": storage, **(configs or {})})
    await known_everywhere(brokers, "t")
    leader = leader_of(brokers)
    assert leader is not None
    assert log_of(leader).is_shared == (storage == "object")
    return leader


async def fill(broker: Broker, count: int) -> None:
    """Write records, each in a batch of its own."""
    for at in range(count):
        await produce(broker, by_producer(b"%d" % at * 20, at))


async def set_storage(broker: Broker, value: str) -> Any:
    """Set odradek.storage of the topic; return the answer."""
    async with client(broker) as there:
        return (await there.ask(altering("t", {STORAGE: value}), version=1)).responses[0]


def is_in(broker: Broker, storage: str) -> bool:
    """Return whether a broker serves the partition from a storage."""
    topic = broker.topics.get("t")
    return topic is not None and [log.is_shared for log in topic.logs] == [storage == "object"]


WAYS = pytest.mark.parametrize(
    ("storage", "other"), [("local", "object"), ("object", "local")], ids=["share", "unshare"]
)


@WAYS
@on_uvloop
async def test_records_and_producers_come_to_the_other_storage(
    tmp_path: Path, catalog_url: str, storage: str, other: str
) -> None:
    async with cluster(tmp_path, catalog_url) as brokers:
        leader = await begin(brokers, storage)
        for at in range(40):
            assert (await produce(leader, by_producer(b"%d" % at * 20, at))).base_offset == at
        before, former = await records(leader), log_of(leader)
        assert (await set_storage(brokers[0], other)).error_code == 0
        await until(lambda: is_in(leader, other))
        log = log_of(leader)
        assert (log.log_end_offset, log.leader_epoch) == (40, former.leader_epoch + 1)
        await until(lambda: not former.directory.exists())
        assert await records(leader) == before
        # A repeated batch is known, a new one follows.
        assert (await produce(leader, by_producer(b"39" * 20, 39))).base_offset == 39
        assert (await produce(leader, by_producer(b"40", 40))).base_offset == 40


@on_uvloop
async def test_another_broker_leads_what_came_into_the_bucket(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url) as brokers:
        leader = await begin(brokers)
        await fill(leader, 40)
        before = await records(leader)
        await set_storage(leader, "object")
        await until(lambda: is_in(leader, "object"))
        await close_out(leader)
        found = await served_by_others(brokers, 0, leader)
        assert await records(found) == before
        assert (await produce(found, by_producer(b"39" * 20, 39))).base_offset == 39
        assert (await produce(found, by_producer(b"40", 40))).base_offset == 40


@on_uvloop
async def test_a_topic_goes_to_and_fro(tmp_path: Path, catalog_url: str) -> None:
    async with cluster(tmp_path, catalog_url, 1) as (one,):
        await begin([one])
        count = 0
        for storage in ("object", "local") * 3:
            for _ in range(10):
                await produce(one, by_producer(b"%d" % count * 20, count))
                count += 1
            await set_storage(one, storage)
            await until(lambda storage=storage: is_in(one, storage))  # type: ignore[misc]
        assert [value for _, _, value in await records(one)] == [
            b"%d" % at * 20 for at in range(count)
        ]
        assert one.sharing is not None
        await one.sharing.janitor.free_wal()
        async with asyncio.timeout(PATIENCE_S):
            while await one.sharing.janitor.free_wal():
                pass


@WAYS
@on_uvloop
async def test_the_end_of_an_empty_log_stays(
    tmp_path: Path, catalog_url: str, storage: str, other: str
) -> None:
    async with cluster(tmp_path, catalog_url, 1) as (one,):
        await begin([one], storage)
        await fill(one, 10)
        log = log_of(one)
        log.roll(0)
        log.advance_start_offset(10)
        log.delete_segments(len(log.segments) - 1, 0)
        assert log.size_bytes == 0
        await set_storage(one, other)
        await until(lambda: is_in(one, other))
        assert await bounds(one) == (10, 10)
        assert (await produce(one, by_producer(b"9" * 20, 9))).base_offset == 9
        assert (await produce(one, by_producer(b"10", 10))).base_offset == 10


@WAYS
@on_uvloop
async def test_deleted_records_are_left_behind(
    tmp_path: Path, catalog_url: str, storage: str, other: str
) -> None:
    """Then a broker that is killed before it notes the log's start finds it by the files."""
    async with cluster(tmp_path, catalog_url, 1) as (one,):
        await begin([one], storage)
        await fill(one, 10)
        log_of(one).advance_start_offset(5)
        await set_storage(one, other)
        await until(lambda: is_in(one, other))
        assert await bounds(one) == (5, 10)
        assert log_of(one).segments[0].base_offset == 5


@WAYS
@on_uvloop
async def test_compacted_offsets_stay_as_they_are(
    tmp_path: Path, catalog_url: str, storage: str, other: str
) -> None:
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    async with cluster(tmp_path, catalog_url, 1) as (one,):
        await begin([one], storage, configs)
        for at in range(60):
            await produce(one, keyed(b"k%d" % (at % 3), b"%d" % at * 30))
        log = log_of(one)
        await until(lambda: log.size_bytes < 4000)
        home = one.partitions.home_of(log)
        await until(lambda: home.cleaner_offsets.get(("t", 0), 0) > 0)
        await set_storage(one, other)
        await until(lambda: is_in(one, other))
        found = {key: value for _, key, value in await records(one)}
        assert found == {b"k%d" % key: b"%d" % (57 + key) * 30 for key in range(3)}
        assert log_of(one).log_end_offset == 60
        assert one.partitions.home_of(log_of(one)).cleaner_offsets["t", 0] > 0


@WAYS
@on_uvloop
async def test_a_real_producer_loses_nothing_meanwhile(
    tmp_path: Path, catalog_url: str, storage: str, other: str
) -> None:
    async with cluster(tmp_path, catalog_url) as brokers:
        leader = await begin(brokers, storage, {"internal.segment.bytes": "100000"})
        address = ",".join(f"127.0.0.1:{one.server.listeners[0].port}" for one in brokers)
        delivered: list[int] = []
        is_over = False

        def note(error: object, message: Message) -> None:
            if error is None:
                delivered.append(int(message.value() or b""))

        def write() -> int:
            producer = Producer(
                {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 1}
            )
            count = 0
            while not is_over:
                producer.produce("t", b"%d" % count, on_delivery=note)
                producer.poll(0.002)
                count += 1
            assert producer.flush(60) == 0
            return count

        writing = asyncio.ensure_future(asyncio.to_thread(write))
        await until(lambda: len(delivered) > 500)
        await set_storage(leader, other)
        await until(lambda: is_in(leader, other))
        count = len(delivered)
        await until(lambda: len(delivered) > count + 500)
        is_over = True
        count = await writing
        assert delivered == list(range(count))
        found = [int(value or b"") for _, _, value in await records(leader)]
        assert found == list(range(count))


@WAYS
@pytest.mark.parametrize("step", ["copy", "finish", "commit"])
@on_uvloop
async def test_the_storage_stays_while_something_fails(
    tmp_path: Path,
    catalog_url: str,
    monkeypatch: pytest.MonkeyPatch,
    storage: str,
    other: str,
    step: str,
) -> None:
    is_failing, tries = True, 0
    kind: Any = BucketCopy if other == "object" else LocalCopy
    copy, finish = kind.copy, kind.finish

    def fail(at: str) -> None:
        nonlocal tries
        if is_failing and step == at:
            tries += 1
            raise BucketFailure("it is away")

    async def copy_or_fail(self: Any) -> None:
        await copy(self)
        fail("copy")

    async def finish_or_fail(self: Any, *args: Any) -> Any:
        change = await finish(self, *args)
        fail("finish")

        def change_or_refuse(connection: Connection) -> Any:
            nonlocal tries
            if is_failing and step == "commit":
                tries += 1
                return []
            return change(connection)

        return change_or_refuse

    monkeypatch.setattr(kind, "copy", copy_or_fail)
    monkeypatch.setattr(kind, "finish", finish_or_fail)
    monkeypatch.setattr(conversions, "_RETRY_S", 0.0)
    async with cluster(tmp_path, catalog_url, 1) as (one,):
        await begin([one], storage)
        await fill(one, 30)
        await set_storage(one, other)
        await until(lambda: tries >= 2)
        await until(lambda: is_in(one, storage))
        if step != "commit":
            await until(lambda: any("storage of partitions" in text for text in one.problems()))
        is_failing = False
        await until(lambda: is_in(one, other))
        await until(lambda: not one.problems())
        assert len(await records(one)) == 30
        assert (await produce(one, by_producer(b"30", 30))).base_offset == 30


@WAYS
@on_uvloop
async def test_a_problem_ends_when_the_storage_is_to_stay(
    tmp_path: Path,
    catalog_url: str,
    monkeypatch: pytest.MonkeyPatch,
    storage: str,
    other: str,
) -> None:
    async def fail(_: Any) -> None:
        raise BucketFailure("it is away")

    monkeypatch.setattr(BucketCopy if other == "object" else LocalCopy, "copy", fail)
    async with cluster(tmp_path, catalog_url, 1) as (one,):
        await begin([one], storage)
        await set_storage(one, other)
        await until(lambda: any("storage of partitions" in text for text in one.problems()))
        await set_storage(one, storage)
        await until(lambda: not one.problems())


@WAYS
@on_uvloop
async def test_a_log_in_the_other_storage_does_not_count_as_open(
    tmp_path: Path, catalog_url: str, storage: str, other: str
) -> None:
    """A shared log stays open when the session ends; others may lead it, and make it local."""
    async with cluster(tmp_path, catalog_url, 1) as (one,):
        await begin([one], storage)
        topic = one.topics.get("t")
        assert topic is not None
        host = ANY_HOST if other == "object" else one.brokers.own.host
        elsewhere = replace(topic.record, leaders=(replace(topic.record.leaders[0], host=host),))
        assert one.partitions.is_open(Wanted(topic.record, 0, topic.config))
        assert not one.partitions.is_open(Wanted(elsewhere, 0, topic.config))


@on_uvloop
async def test_files_that_a_crash_left_behind_are_removed_at_the_next_start(
    tmp_path: Path, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, catalog_url, 1) as (one,):
        await begin([one])
        await produce(one, keyed(b"k", b"v"))
        local: Log = log_of(one)

        async def keep(self: Any, closed: Any) -> None:
            pass

        monkeypatch.setattr(Closing, "remove", keep)
        await set_storage(one, "object")
        await until(lambda: is_in(one, "object"))
        directory = local.directory
    monkeypatch.undo()
    assert directory.exists()
    async with cluster(tmp_path, catalog_url, 1) as (one,):
        await until(lambda: is_in(one, "object"))
        assert len(await records(one)) == 1
        assert not directory.exists()
