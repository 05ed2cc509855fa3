"""A bucket and a copy of its catalog are restored, and served from the moment of the copy on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from bench.servers.postgresql import Postgresql
from bench.servers.s3_server import S3Server
from odradek.broker.catalog.engines import open_engine
from odradek.broker.composition import Broker
from odradek.broker.shared.orphans import session_of
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.storage.objects.store import ObjectExists
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import copy_catalog, let_leases_end
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.filled_bucket import Place, sharing
from tests.broker.live import PATIENCE_S, client, create, on_uvloop, until
from tests.broker.test_cluster import SLOW, described, known_everywhere
from tests.broker.test_shared_segments import SMALL
from tests.broker.test_shared_topics import cluster, leader_of
from tests.cli.commands import Commands
from tests.storage.object_stores import bucket, s3_server
from tests.support.requests import fetching
from tests.support.waiting import wait_until

__all__ = ["bucket", "s3_server"]

SETTINGS = {
    **SLOW,
    "odradek.wal.inline.bytes.max": "300",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "20",
}
COMPACTED = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
COMMANDS = Commands("127.0.0.1:1")  # no broker is asked

pytestmark = pytest.mark.slow
PARTITIONS = (("t", 0), ("t", 1), ("c", 0))

Read = dict[tuple[str, int], list[tuple[int, bytes, bytes]]]
"""Offset, key and value of each record, by topic and partition."""


class Clients:
    """Real clients of a cluster; their calls wait."""

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self.bootstrap = ",".join(f"127.0.0.1:{one.server.listeners[0].port}" for one in brokers)
        self.failures: list[object] = []

    def write(self, name: str) -> None:
        """Produce idempotently, in transactions and to a compacted topic; commit offsets."""
        idempotent = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        for at in range(30):
            value = f"{name}{at}".encode() + bytes(100 if at % 10 else 400)
            self._send(idempotent, "t", f"k{at}", value, partition=at % 2)
            self._send(idempotent, "c", f"k{at % 5}", value)
            idempotent.flush(PATIENCE_S)
        transactional = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": "a-transaction"}
        )
        transactional.init_transactions(PATIENCE_S)
        for at, is_committed in enumerate([True, False, True]):
            transactional.begin_transaction()
            for partition in (0, 1):
                value = f"{name}-transaction{at}".encode()
                self._send(transactional, "t", "tx", value, partition=partition)
            if is_committed:
                transactional.commit_transaction(PATIENCE_S)
            else:
                transactional.flush(PATIENCE_S)
                transactional.abort_transaction(PATIENCE_S)
        assert not self.failures
        with_offsets = self._consumer()
        ends = [TopicPartition("t", at, self._end("t", at)) for at in (0, 1)]
        with_offsets.commit(offsets=ends, asynchronous=False)
        with_offsets.close()

    def read(self) -> Read:
        """Return all committed records."""
        consumer, found = self._consumer(), Read()
        for topic, partition in PARTITIONS:
            end = self._end(topic, partition)
            consumer.assign([TopicPartition(topic, partition, 0)])
            part = found.setdefault((topic, partition), [])
            while consumer.position([TopicPartition(topic, partition)])[0].offset < end:
                one = consumer.poll(1)
                if one is not None:
                    assert not one.error(), one.error()
                    part.append((one.offset(), one.key(), one.value().rstrip(b"\0")))
        consumer.close()
        return found

    def committed(self) -> list[int]:
        """Return the offsets of the group."""
        consumer = self._consumer()
        asked = [TopicPartition("t", partition) for partition in (0, 1)]
        found = [one.offset for one in consumer.committed(asked, PATIENCE_S)]
        consumer.close()
        return found

    def _send(
        self, producer: Producer, topic: str, key: str, value: bytes, partition: int = 0
    ) -> None:
        def note(error: object, message: Message) -> None:
            if error is not None and "aborted" not in str(error):
                self.failures.append(error)

        producer.produce(topic, value, key, partition=partition, on_delivery=note)

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "g",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
            }
        )

    def _end(self, topic: str, partition: int) -> int:
        """Return the end of a partition, which may be on its way to another broker.

        A client would ask the leader that it knows, again and again.
        """
        ends: list[int] = []

        def is_found() -> bool:
            consumer, asked = self._consumer(), TopicPartition(topic, partition)
            with suppress(KafkaException):
                ends.append(consumer.get_watermark_offsets(asked, PATIENCE_S)[1])
            consumer.close()
            return bool(ends)

        wait_until(is_found, f"the end of {topic}-{partition}")
        return ends[0]


@dataclass
class Numbers:
    """The numbers that a cluster has given away."""

    sessions: set[int]
    leader_epoch: int
    producer_id: int


async def served(brokers: Sequence[Broker]) -> Clients:
    """Wait until all partitions are served; return clients."""
    await known_everywhere(brokers, "c")
    for name, number in PARTITIONS:
        await until(partial(leader_of, brokers, number, name))
    return Clients(brokers)


@dataclass
class Lost:
    """A cluster whose catalog is lost: a copy of it, what it had then, and what came later."""

    copy: str
    read: Read
    committed: list[int]
    later: Read
    numbers: Numbers


async def numbers_of(brokers: Sequence[Broker]) -> Numbers:
    (_, epoch) = (await described(brokers[0], "t"))[0]
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    async with client(brokers[0]) as one, asyncio.timeout(PATIENCE_S):
        # The answer while the catalog is busy; clients repeat the request.
        busy = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        while (granted := await one.ask(asked, version=4)).error_code == busy:
            pass
    assert granted.error_code == ErrorCode.NONE
    sessions = {one.store.session_epoch for one in brokers}  # type: ignore[union-attr]
    return Numbers(sessions, epoch, granted.producer_id)


async def live_and_lose(path: Path, url: str, server: Postgresql | None, store: Bucket) -> Lost:
    """Use a cluster, copy its catalog, and use it again; it has stopped."""
    settings = {**SETTINGS, **store.settings}
    async with cluster(path, url, 2, settings) as brokers:
        await create(brokers[0], "t", 2, {**SMALL, "retention.ms": "-1"})
        await create(brokers[0], "c", 1, COMPACTED)
        clients = await served(brokers)
        await asyncio.to_thread(clients.write, "first")
        read = await asyncio.to_thread(clients.read)
        committed = await asyncio.to_thread(clients.committed)
        name = f"{Path(urlsplit(url).path).stem}-copy"
        copy = await asyncio.to_thread(copy_catalog, url, name, server)
        await asyncio.to_thread(clients.write, "later")
    async with cluster(path, url, 2, settings) as brokers:
        clients = await served(brokers)
        await asyncio.to_thread(clients.write, "last")
        later, numbers = await asyncio.to_thread(clients.read), await numbers_of(brokers)
    return Lost(copy, read, committed, later, numbers)


@dataclass
class Bucket:
    """Where a cluster keeps its objects: the settings, and the folder in which they are files."""

    settings: dict[str, str]
    path: Path

    def given(self, url: str, command: str, *arguments: str) -> tuple[str, ...]:
        """Return the words of a command about the bucket and a catalog."""
        settings = [word for one in self.settings.items() for word in ("--set", "=".join(one))]
        return ("cluster", command, "--catalog", url, *settings, *arguments)


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    if request.param == "file":
        path = tmp_path / "bucket"
        return Bucket({"odradek.object.store.url": f"file://{path}"}, path)
    server: S3Server = request.getfixturevalue("s3_server")
    url = f"{request.getfixturevalue('bucket')}/{tmp_path.name}"
    path = server.folder / "buckets" / url.removeprefix("s3://")
    return Bucket(server.settings(url, server.port), path)


@pytest.fixture
def server(catalog_url: str, request: pytest.FixtureRequest) -> Postgresql | None:
    if catalog_url.startswith("sqlite"):
        return None
    found: Postgresql = request.getfixturevalue("postgresql")
    return found


@on_uvloop
async def test_all_that_was_acknowledged_before_the_copy_is_served(
    tmp_path: Path, catalog_url: str, server: Postgresql | None, store: Bucket
) -> None:
    lost = await live_and_lose(tmp_path, catalog_url, server, store)
    there = Place(store.path, open_engine(lost.copy))
    let_leases_end(there.engine)
    planned = await asyncio.to_thread(COMMANDS.shown, *store.given(lost.copy, "restore"))
    assert "Nothing is changed yet: --apply does it." in planned
    assert "Newer than the copy, kept without a name: " in planned
    assert there.run("SELECT count(*) FROM session WHERE clock = 'restored'") == [(0,)]
    restore = store.given(lost.copy, "restore", "--apply")
    done = await asyncio.to_thread(COMMANDS.shown, *restore)
    assert done.endswith("Restored: start the brokers.\n")
    objects = there.keys()
    async with cluster(tmp_path, lost.copy, 2, {**SETTINGS, **store.settings}) as brokers:
        clients = await served(brokers)
        numbers = await numbers_of(brokers)
        assert min(numbers.sessions) > max(map(session_of, objects))
        assert numbers.leader_epoch > lost.numbers.leader_epoch
        assert numbers.producer_id > lost.numbers.producer_id
        read = await asyncio.to_thread(clients.read)
        assert latest(read.pop(("c", 0))) == latest(lost.read[("c", 0)])
        assert read == {key: found for key, found in lost.read.items() if key[0] == "t"}
        assert await asyncio.to_thread(clients.committed) == lost.committed
        await consumers_notice_the_lost_end(brokers, lost)
        await asyncio.to_thread(clients.write, "new")
        for key, found in (await asyncio.to_thread(clients.read)).items():
            if key[0] == "t":
                before = read[key]
                assert found[: len(before)] == before
                new = [value for _, _, value in found[len(before) :]]
                assert len(new) == len(set(new)) == 17
                assert all(value.startswith(b"new") for value in new)
        await consumers_notice_that_the_end_is_another(brokers, lost)
    assert objects <= there.keys()
    problems, check = there.check(orphans_before_ms=0)
    assert (problems, check.orphans) == ([], [])
    assert check.kept > 0
    shown = await asyncio.to_thread(COMMANDS.shown, *store.given(lost.copy, "fsck"))
    assert "Without a name, and kept since a restore: " in shown
    delete = ("--delete-orphans", "--with-kept", "--orphan-age", "0")
    shown = await asyncio.to_thread(COMMANDS.shown, *store.given(lost.copy, "fsck", *delete))
    assert shown.startswith(f"Deleted {check.kept} orphans")
    there.engine.close()


def latest(records: list[tuple[int, bytes, bytes]]) -> dict[bytes, tuple[int, bytes]]:
    return {key: (offset, value) for offset, key, value in records}


def end_of(read: Read, partition: int = 0) -> int:
    return read["t", partition][-1][0] + 1


async def consumers_notice_the_lost_end(brokers: Sequence[Broker], lost: Lost) -> None:
    """Ask as a consumer that has read records after the copy."""
    leader = await until(lambda: leader_of(brokers))
    async with client(leader) as one:
        answer = await one.ask(fetching("t", end_of(lost.later)), version=12)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        part = OffsetForLeaderPartition(partition=0, leader_epoch=lost.numbers.leader_epoch)
        topics = [OffsetForLeaderTopic(topic="t", partitions=[part])]
        asked = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        (found,) = (await one.ask(asked, version=4)).topics[0].partitions
        assert not found.error_code
        assert end_of(lost.read) <= found.end_offset <= end_of(lost.read) + 2
        assert found.leader_epoch <= lost.numbers.leader_epoch


def after_epoch(request: FetchRequest, epoch: int) -> FetchRequest:
    """Let a consumer say the epoch of the record before."""
    (topic,) = request.topics
    (part,) = topic.partitions
    return replace(
        request, topics=[replace(topic, partitions=[replace(part, last_fetched_epoch=epoch)])]
    )


async def consumers_notice_that_the_end_is_another(brokers: Sequence[Broker], lost: Lost) -> None:
    """Ask for an offset that has another record now, as a consumer that has read the lost one."""
    leader = await until(lambda: leader_of(brokers))
    request = after_epoch(fetching("t", end_of(lost.read) + 5), lost.numbers.leader_epoch)
    async with client(leader) as one:
        answer = await one.ask(request, version=12)
        (part,) = answer.responses[0].partitions
        assert not part.error_code
        assert part.diverging_epoch.end_offset <= end_of(lost.read) + 2
        assert 0 <= part.diverging_epoch.epoch <= lost.numbers.leader_epoch


@on_uvloop
async def test_without_a_restore_numbers_are_given_twice(
    tmp_path: Path, catalog_url: str, server: Postgresql | None, store: Bucket
) -> None:
    lost = await live_and_lose(tmp_path, catalog_url, server, store)
    there = Place(store.path, open_engine(lost.copy))
    let_leases_end(there.engine)
    problems, _ = await asyncio.to_thread(there.check)
    assert {one.lost for one in problems} == {"perhaps records"}
    in_bucket = set(map(session_of, there.keys()))
    async with cluster(tmp_path, lost.copy, 2, {**SETTINGS, **store.settings}) as brokers:
        await served(brokers)
        numbers = await numbers_of(brokers)
        assert numbers.sessions <= in_bucket
        assert numbers.producer_id <= lost.numbers.producer_id
        for one in brokers:
            session = one.store.session_epoch  # type: ignore[union-attr]
            every = there.keys()
            (first, *_) = sorted(key for key in every if session_of(key) == session)
            with pytest.raises(ObjectExists):
                sharing(one).logs._bucket.store.create(first, b"x")
    there.engine.close()
