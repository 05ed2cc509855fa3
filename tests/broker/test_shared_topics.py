"""Shared topics: acknowledged means committed, and any broker takes a partition over."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog import changes
from odradek.broker.catalog.sessions import close_session
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.composition import Broker
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared import logs, reading_back
from odradek.broker.shared.building import Builder
from odradek.broker.shared.reading_back import ReadBack
from odradek.broker.topics import following
from odradek.broker.topics.names import CONSUMER_OFFSETS
from odradek.broker.wal.entries import Entry
from odradek.broker.wal.wal import WalFailure, WalLost
from odradek.protocol.batches import Record, encode_batch, iterate_batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.storage.objects.store import StoreUnavailable
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import PATIENCE_S, batch, client, create, on_uvloop, until
from tests.broker.test_cluster import QUICK, SLOW, known_everywhere, member, silent
from tests.support.requests import committing, fetching, listing_offsets, producing

SHARED = {"odradek.storage": "object"}


@asynccontextmanager
async def cluster(
    path: Path, url: str, count: int = 3, settings: dict[str, str] | None = None
) -> AsyncIterator[list[Broker]]:
    """Run brokers with a bucket; all topics are shared."""
    bucket = path / "bucket"
    bucket.mkdir(exist_ok=True)
    shared = {"odradek.object.store.url": f"file://{bucket}", **SHARED, **(settings or SLOW)}
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(member(path, url, node_id, shared))
            for node_id in range(1, count + 1)
        ]
        await until(lambda: all(len(one.brokers) == count for one in brokers))
        yield brokers


def by_producer(value: bytes, sequence: int = 0) -> bytes:
    """Encode a batch of an idempotent producer."""
    return encode_batch([Record(0, 1, b"k", value)], producer_id=7, base_sequence=sequence,
                        producer_epoch=0)  # fmt: skip


async def produce(broker: Broker, data: bytes, partition: int = 0, acks: int = -1) -> Any:
    """Return the answer for one batch."""
    async with client(broker) as there:
        answer = await there.ask(producing("t", data, partition=partition, acks=acks), version=9)
        return answer.responses[0].partition_responses[0]


async def values(broker: Broker, partition: int = 0) -> list[tuple[int, bytes | None]]:
    """Return the offset and size of each batch that a consumer reads."""
    async with client(broker) as there:
        answer = await there.ask(fetching("t", partition=partition), version=12)
        data = answer.responses[0].partitions[0].records or b""
        return [(header.base_offset, bytes(data[at:][61:header.size_bytes]))
                for at, header in iterate_batches(data)]  # fmt: skip


def leader_of(brokers: Sequence[Broker], partition: int = 0, name: str = "t") -> Broker | None:
    """Return the broker that serves a partition."""
    for one in brokers:
        topic = one.topics.get(name)
        if topic is not None and partition in [log.partition for log in topic.logs]:
            return one
    return None


async def served_by_others(brokers: Sequence[Broker], partition: int, former: Broker) -> Broker:
    """Wait until another broker serves a partition; return it."""
    others = [one for one in brokers if one is not former]
    await until(lambda: leader_of(others, partition) is not None)
    found = leader_of(others, partition)
    assert found is not None
    return found


async def close_out(broker: Broker, *, joins_again: bool = False) -> None:
    """Close a broker's session as another one does that takes it for dead.

    One that joins again gets its share of the partitions back.
    """
    store, membership = broker.store, broker.membership
    assert membership is not None
    if not joins_again:
        membership._tasks[0].cancel()
    epoch = store.session_epoch  # type: ignore[union-attr]

    def work(connection: Connection) -> None:
        close_session(connection, store._engine, epoch)  # type: ignore[union-attr]
        topic_ids = CatalogStatements(connection).withdraw_leader(broker.node_id)
        store._note(connection, (changes.SESSIONS, *map(changes.topic, topic_ids)))  # type: ignore[union-attr]

    await store._side.transact(work)  # type: ignore[union-attr]


@on_uvloop
async def test_others_serve_all_that_a_lost_broker_has_acknowledged(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url) as brokers:
        await create(brokers[0], "t", 3)
        await known_everywhere(brokers, "t")
        before = {}
        for partition in range(3):
            leader = leader_of(brokers, partition)
            assert leader is not None
            for at in range(3):
                answer = await produce(leader, by_producer(b"%d" % at, at), partition)
                assert (answer.error_code, answer.base_offset) == (0, at)
            before[partition] = leader, await values(leader, partition)
        lost, _ = before[0]
        await close_out(lost)
        for partition, (former, read) in before.items():
            if former is not lost:
                continue
            leader = await served_by_others(brokers, partition, lost)
            assert await values(leader, partition) == read
            # The answer to the last batch may have been lost.
            again = await produce(leader, by_producer(b"2", 2), partition)
            assert (again.error_code, again.base_offset) == (0, 2)
            more = await produce(leader, by_producer(b"3", 3), partition)
            assert (more.error_code, more.base_offset) == (0, 3)


@on_uvloop
async def test_a_broker_whose_session_is_closed_acknowledges_nothing(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url) as brokers:
        await create(brokers[0], "t", 1)
        await known_everywhere(brokers, "t")
        former = leader_of(brokers)
        assert former is not None
        first = await produce(former, batch(b"a"))
        assert first.error_code == 0
        await close_out(former, joins_again=True)
        refused = await produce(former, batch(b"b"))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = await served_by_others(brokers, 0, former)
        assert len(await values(leader)) == 1
        # It joins again, and may lead again; all agree on the one record.
        await until(lambda: not former.problems())
        await until(lambda: leader_of(brokers) is not None)


@on_uvloop
async def test_records_are_readable_once_they_are_committed(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url, 1) as (one,):
        await create(one, "t", 1)
        backend = one._cluster._sharing.logs.wal._backend  # type: ignore[union-attr]
        commit, may_commit = backend.commit, asyncio.Event()

        async def wait(first: int, entries: Sequence[tuple[Entry, bool]]) -> None:
            await may_commit.wait()
            await commit(first, entries)

        backend.commit = wait  # type: ignore[method-assign]
        acknowledged = asyncio.ensure_future(produce(one, batch(b"a")))
        log = one.topics.get("t").log(0)  # type: ignore[union-attr]
        assert log is not None
        await until(lambda: log.log_end_offset == 1)
        assert (await produce(one, batch(b"b"), acks=1)).base_offset == 1
        assert await values(one) == []
        async with client(one) as there:
            listed = await there.ask(listing_offsets({"t": [0]}), version=7)
            assert listed.topics[0].partitions[0].offset == 0
            there.send(fetching("t", wait_ms=30_000), version=12)
            assert not acknowledged.done()
            may_commit.set()
            assert (await acknowledged).base_offset == 0
            _, woken = await there.receive()
            assert woken.responses[0].partitions[0].high_watermark >= 1
        await until(lambda: log.high_watermark == 2)


@on_uvloop
async def test_producers_wait_while_the_catalog_takes_no_entries(
    tmp_path: Path, catalog_url: str
) -> None:
    settings = {
        **SLOW,
        "odradek.wal.pending.bytes.max": "2000",
        "odradek.wal.bytes.max": "1000",
        "odradek.wal.inline.bytes.max": "1000",
    }
    async with cluster(tmp_path, catalog_url, 1, settings) as (one,):
        await create(one, "t", 1)
        assert one._cluster._sharing is not None
        shared = one._cluster._sharing.logs
        backend = shared.wal._backend
        commit, may_commit = backend.commit, asyncio.Event()

        async def fail(first: int, entries: Sequence[tuple[Entry, bool]]) -> None:
            if not may_commit.is_set():
                raise WalFailure("no space, on purpose")
            await commit(first, entries)

        backend.commit = fail  # type: ignore[method-assign]
        sent = [
            asyncio.ensure_future(produce(one, batch(b"x" * 500), acks=1)) for _ in range(10)
        ]
        await until(lambda: any("no space" in text for text in one.problems()))
        assert shared.wal.pending_bytes < 3000
        assert not all(one.done() for one in sent)
        # The batches of four are in the log: 2,284 bytes.
        await until(lambda: one.sharing.facts().counts.waits == 6)  # type: ignore[union-attr]
        may_commit.set()
        answers = await asyncio.gather(*sent)
        assert sorted(one.base_offset for one in answers) == list(range(10))
        await until(lambda: not one.problems())


async def commit_offset(brokers: Sequence[Broker], offset: int) -> None:
    """Commit an offset of a group, at the broker that coordinates it."""

    async def is_committed(one: Broker) -> bool:
        async with client(one) as there:
            await there.ask(FindCoordinatorRequest(coordinator_keys=["g"]), version=4)
            answer = await there.ask(committing("g", {"t": {0: offset}}), version=8)
            return not answer.topics[0].partitions[0].error_code

    async with asyncio.timeout(PATIENCE_S):
        while not any([await is_committed(one) for one in brokers]):
            pass


async def committed_offset(brokers: Sequence[Broker]) -> int:
    """Return the offset of the group, as its coordinator knows it."""
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    asked = OffsetFetchRequest(groups=[group])
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for one in brokers:
                async with client(one) as there:
                    (found,) = (await there.ask(asked, version=8)).groups
                    if not found.error_code:
                        return int(found.topics[0].partitions[0].committed_offset)


@asynccontextmanager
async def coordinated(
    path: Path, url: str, settings: dict[str, str] | None = None
) -> AsyncIterator[tuple[Broker, Broker]]:
    """Run two brokers with a committed offset, 5; the first one is the group's coordinator."""
    settings = {**SLOW, "offsets.topic.num.partitions": "1", **(settings or {})}
    async with cluster(path, url, 2, settings) as brokers:
        await create(brokers[0], "t", 1)
        await known_everywhere(brokers, "t")
        await commit_offset(brokers, 5)
        former = leader_of(brokers, name=CONSUMER_OFFSETS)
        assert former is not None
        (other,) = [one for one in brokers if one is not former]
        yield former, other


@on_uvloop
async def test_committed_offsets_outlive_the_coordinator(
    tmp_path: Path, catalog_url: str
) -> None:
    async with coordinated(tmp_path, catalog_url) as (former, other):
        await close_out(former)
        assert await committed_offset([other]) == 5


@on_uvloop
async def test_committed_offsets_outlive_the_coordinator_of_sealed_segments(
    tmp_path: Path, catalog_url: str
) -> None:
    settings = {"offsets.topic.segment.bytes": "10000"}
    async with coordinated(tmp_path, catalog_url, settings) as (former, other):
        topic = former.topics.get(CONSUMER_OFFSETS)
        assert topic is not None
        async with client(former) as there:
            groups = 0
            while len(topic.logs[0].segments) < 3:
                groups += 1
                await there.ask(committing(f"of-{groups}", {"t": {0: groups}}), version=8)
        await until(lambda: all(one.log.is_fixed for one in topic.logs[0].segments[:-1]))
        assert topic.logs[0].segments[0].offset_index.last()
        await close_out(former)
        assert await committed_offset([other]) == 5


@on_uvloop
async def test_a_broker_that_stops_hands_its_partitions_over(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url) as brokers:
        await create(brokers[0], "t", 6)
        await known_everywhere(brokers, "t")
        leaving = brokers[2]
        led = [log.partition for log in leaving.topics.get("t").logs]  # type: ignore[union-attr]
        assert led
        for partition in led:
            assert (await produce(leaving, batch(b"a"), partition)).error_code == 0
        await leaving.hand_over(lambda: False)
        for partition in led:
            leader = await served_by_others(brokers, partition, leaving)
            assert len(await values(leader, partition)) == 1
        refused = await produce(leaving, batch(b"a"), led[0])
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_uvloop
async def test_a_cluster_starts_again_without_its_disks(tmp_path: Path, catalog_url: str) -> None:
    async with cluster(tmp_path, catalog_url, 2) as brokers:
        await create(brokers[0], "t", 4)
        await known_everywhere(brokers, "t")
        for partition in range(4):
            leader = leader_of(brokers, partition)
            assert leader is not None
            answer = await produce(leader, batch(b"%d" % partition), partition)
            assert answer.error_code == 0
    for node_id in (1, 2):
        shutil.rmtree(tmp_path / str(node_id))
    async with cluster(tmp_path, catalog_url, 2) as brokers:
        await known_everywhere(brokers, "t")
        await until(lambda: all(len(one.topics.get("t").logs) == 2 for one in brokers))  # type: ignore[union-attr]
        for partition in range(4):
            leader = leader_of(brokers, partition)
            assert leader is not None
            assert len(await values(leader, partition)) == 1


@on_uvloop
async def test_a_silent_broker_loses_its_partitions_and_gets_its_share_back(
    tmp_path: Path,
) -> None:
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    async with cluster(tmp_path, url, 2, dict(QUICK)) as (one, two):
        await create(one, "t", 4)
        await known_everywhere([two], "t")
        async with silent(two):
            await until(lambda: len(one.topics.get("t").logs) == 4)  # type: ignore[union-attr]
            for partition in range(4):

                async def is_written(partition: int = partition) -> bool:
                    # On a busy machine its own session may end, too, and begin again.
                    return not (await produce(one, batch(b"a"), partition)).error_code

                await until(is_written)
        await until(lambda: len(two.topics.get("t").logs) == 2)  # type: ignore[union-attr]
        assert not two.problems()
        for log in two.topics.get("t").logs:  # type: ignore[union-attr]
            assert len(await values(two, log.partition)) == 1


@on_uvloop
async def test_some_topics_are_served_while_others_are_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of logs the last ones take a while."""
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    names = [f"t-{number}" for number in range(4)]
    served: list[int] = []

    async def read_back(*arguments: Any) -> ReadBack:
        topics = [topic for topic in one.topics if topic.name in names]
        served.append(sum(len(topic.logs) == 2 for topic in topics))
        return await reading_back.read_back(*arguments)

    monkeypatch.setattr(following, "_OPENED_AT_ONCE", 1)
    async with cluster(tmp_path, url, 2, dict(QUICK)) as (one, two):
        for name in names:
            await create(one, name, 2)
            await known_everywhere([two], name)
        monkeypatch.setattr(logs, "read_back", read_back)
        async with silent(two):
            await until(
                lambda: all(len(one.topics.get(name).logs) == 2 for name in names)  # type: ignore[union-attr]
            )
            assert {1, 2, 3} <= set(served)


@on_uvloop
async def test_a_log_that_was_built_for_a_session_that_ended_meanwhile_is_not_served(
    tmp_path: Path, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_sessions: list[int] = []

    async def read_back(*arguments: Any) -> ReadBack:
        """Let the WAL find the session closed just before the log is there."""
        found = await reading_back.read_back(*arguments)
        session = broker.store.session_epoch  # type: ignore[union-attr]
        built_sessions.append(session)
        if len(built_sessions) == 1:
            await close_out(broker, joins_again=True)
            assert broker.sharing is not None
            broker.sharing.logs.wal.lose(WalLost("closed, on purpose"))
        return found

    async with cluster(tmp_path, catalog_url, 1) as (broker,):
        await create(broker, "t", 1)
        await until(lambda: leader_of([broker]) is not None)
        monkeypatch.setattr(logs, "read_back", read_back)
        await close_out(broker, joins_again=True)
        await until(lambda: len(built_sessions) > 1 and leader_of([broker]) is not None)
        answer = await produce(broker, batch(b"a"))
        assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("inline_max", ["0", "65536"])
@on_uvloop
async def test_entries_come_back_from_the_bucket_and_from_the_catalog(
    tmp_path: Path, inline_max: str
) -> None:
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    settings = {**SLOW, "odradek.wal.inline.bytes.max": inline_max}
    async with cluster(tmp_path, url, 2, settings) as brokers:
        await create(brokers[0], "t", 1)
        await known_everywhere(brokers, "t")
        former = leader_of(brokers)
        assert former is not None
        for at in range(5):
            assert (await produce(former, by_producer(b"x" * 100, at))).base_offset == at
        read = await values(former)
        await close_out(former)
        assert await values(await served_by_others(brokers, 0, former)) == read
    assert any((tmp_path / "bucket").rglob("wal/*/*")) == (inline_max == "0")


@on_uvloop
async def test_a_coordinator_does_not_take_an_offline_partition_for_an_empty_one(
    tmp_path: Path, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinated(tmp_path, catalog_url) as (former, other):
        begin, refusals = Builder.begin, 0

        def refuse(builder: Builder, *args: Any) -> Any:
            nonlocal refusals
            refusals += 1
            if refusals < 3:
                raise StoreUnavailable("the bucket is away, on purpose")
            return begin(builder, *args)

        monkeypatch.setattr(Builder, "begin", refuse)
        await close_out(former)
        await until(lambda: refusals >= 2)
        assert await committed_offset([other, former]) == 5
