"""Consumers read shared partitions from a broker of their rack (KIP-392)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from odradek.broker.composition import Broker
from odradek.broker.shared.building import Builder
from odradek.broker.topics.states import Wanted
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import iterate_batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.storage.log import Log
from tests.broker.live import PATIENCE_S, client, create, on_uvloop, until
from tests.broker.test_cluster import SLOW, known_everywhere, member
from tests.broker.test_shared_segments import (
    EAGER,
    Read,
    delete_records,
    free,
    keyed,
    log_of,
    stored,
)
from tests.broker.test_shared_topics import SHARED, close_out, leader_of, produce, served_by_others
from tests.support.requests import fetching

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}
SMALL = {"internal.segment.bytes": "1000", "file.delete.delay.ms": "0"}


@asynccontextmanager
async def cluster(
    path: Path, racks: dict[int, str], settings: dict[str, str] | None = None
) -> AsyncIterator[list[Broker]]:
    """Run brokers with a bucket, each in a rack; all topics are shared."""
    (path / "bucket").mkdir()
    shared = {"odradek.object.store.url": f"file://{path / 'bucket'}", **SHARED}
    shared |= SLOW if settings is None else settings
    url = f"sqlite://{path / 'catalog.db'}"
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(
                member(path, url, one, {**shared, "broker.rack": rack})
            )
            for one, rack in racks.items()
        ]
        await until(lambda: all(len(one.brokers) == len(racks) for one in brokers))
        yield brokers


async def begin(
    brokers: Sequence[Broker], configs: dict[str, str] | None = None
) -> tuple[Broker, Broker, str]:
    """Create a topic; return its leader, and the broker that is closest to another rack."""
    await create(brokers[0], "t", 1, {**SMALL, "retention.ms": "-1", **(configs or {})})
    await known_everywhere(brokers, "t")
    leader = leader_of(brokers)
    assert leader is not None
    rack = next(rack for rack in sorted(set(RACKS.values())) if rack != leader.brokers.own.rack)
    found = leader.brokers.closest("t-0", rack)
    return leader, next(one for one in brokers if one.node_id == found), rack


async def fetch(broker: Broker, offset: int = 0, *, rack: str = "", **asked: Any) -> Any:
    """Return the answer for the partition."""
    async with client(broker) as there:
        answer = await there.ask(fetching("t", offset, rack=rack, **asked), version=12)
        (found,) = answer.responses[0].partitions
        return found


async def read(broker: Broker, offset: int, rack: str = "") -> list[Read]:
    """Return the offsets, keys and values of all records from an offset on."""
    found: list[Read] = []
    while True:
        answer = await fetch(broker, offset, rack=rack)
        for at, header in iterate_batches(answer.records or b""):
            whole = answer.records[at : at + header.size_bytes]
            found += [(one.offset, one.key, one.value) for one in decode_records(whole)]
            offset = header.next_offset
        if not answer.records:
            return [one for one in found if one[0] < answer.high_watermark]


async def fetched(ask: Callable[[], Awaitable[Any]], is_right: Callable[[Any], bool]) -> Any:
    """Fetch until the answer is right, and return it."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_right(found := await ask()):
            pass
        return found


def address(broker: Broker) -> str:
    return f"127.0.0.1:{broker.server.listeners[0].port}"


def replica_of(broker: Broker) -> Log | None:
    topic = broker.topics.get("t")
    assert topic is not None
    assert broker.replicas is not None
    return broker.replicas.find((topic.topic_id, 0), topic.record.leaders[0])


@on_uvloop
async def test_a_leader_names_the_closest_broker_which_serves_the_same_bytes(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, RACKS) as brokers:
        leader, closest, rack = await begin(brokers)
        for at in range(5):
            assert (await produce(leader, keyed(b"k", b"%d" % at))).error_code == 0
        own = await fetch(leader, rack=leader.brokers.own.rack or "")
        assert own.preferred_read_replica == -1
        assert len(own.records)
        sent = await fetch(leader, rack=rack)
        assert (sent.preferred_read_replica, sent.records, sent.error_code) == (
            closest.node_id, b"", 0,
        )  # fmt: skip
        found = await fetch(closest, rack=rack)
        assert (found.error_code, found.high_watermark) == (0, 5)
        assert found.records == own.records
        # Without a rack it reads from leaders only; so it does in a rack without brokers.
        assert (await fetch(closest)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        for nowhere in ("", "z"):
            assert (await fetch(leader, rack=nowhere)).records == own.records


@on_uvloop
async def test_a_consumer_that_comes_back_is_served_by_the_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, RACKS) as brokers:
        leader, closest, rack = await begin(brokers)
        await produce(leader, keyed(b"k", b"v"))
        assert (await fetch(leader, rack=rack)).preferred_read_replica == closest.node_id
        assert (await fetch(leader, rack=rack)).records


@on_uvloop
async def test_all_brokers_name_one_replica_in_each_rack(tmp_path: Path) -> None:
    async with cluster(tmp_path, RACKS) as brokers:
        leader, closest, _ = await begin(brokers)
        described = []
        for broker in brokers:
            async with client(broker) as there:
                asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
                (found,) = (await there.ask(asked, version=12)).topics[0].partitions
                described.append((found.replica_nodes, found.isr_nodes, found.offline_replicas))
        assert described == [described[0]] * len(brokers)
        replicas, in_sync, offline = described[0]
        assert (replicas[0], in_sync, offline) == (leader.node_id, replicas, [])
        assert closest.node_id in replicas
        assert sorted(RACKS[one] for one in replicas) == sorted(set(RACKS.values()))


@on_uvloop
async def test_a_waiting_consumer_gets_a_record_once_it_is_committed(tmp_path: Path) -> None:
    async with cluster(tmp_path, RACKS) as brokers:
        leader, closest, rack = await begin(brokers)
        for at in range(3):
            waiting = asyncio.ensure_future(fetch(closest, at, rack=rack, wait_ms=30_000))
            await until(lambda: replica_of(closest) is not None)
            assert (await produce(leader, keyed(b"k", b"%d" % at))).error_code == 0
            found = await waiting
            assert (found.error_code, found.high_watermark) == (0, at + 1)
            assert found.records


@on_uvloop
async def test_a_consumer_waits_for_records_that_the_broker_does_not_know_yet(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, RACKS) as brokers:
        leader, closest, rack = await begin(brokers)
        await fetch(closest, rack=rack)
        for at in range(20):
            await produce(leader, keyed(b"k", b"%d" % at))
            # Its leader has served this consumer up to here.
            found = await fetch(closest, at + 1, rack=rack)
            assert (found.error_code, found.high_watermark) == (0, at + 1)
        found = await fetch(closest, 21, rack=rack)
        assert found.error_code == ErrorCode.OFFSET_NOT_AVAILABLE


@on_uvloop
async def test_read_committed_is_the_same_at_both(tmp_path: Path) -> None:
    async with cluster(tmp_path, RACKS) as brokers:
        leader, closest, rack = await begin(brokers)

        def transact() -> Producer:
            producer = Producer({"bootstrap.servers": address(leader), "transactional.id": "x"})
            producer.init_transactions(30)
            for at in range(6):
                producer.begin_transaction()
                producer.produce("t", key=b"k", value=b"%d" % at)
                producer.flush(30)
                if at % 2:
                    producer.abort_transaction(30)
                else:
                    producer.commit_transaction(30)
            producer.begin_transaction()
            producer.produce("t", key=b"k", value=b"open")
            producer.flush(30)
            return producer

        await fetch(closest, rack=rack)
        producer = await asyncio.to_thread(transact)
        own = await fetch(leader, isolation=1)
        assert len(own.aborted_transactions) == 3
        assert own.last_stable_offset < own.high_watermark
        # The WAL is looked at for this offset.
        await fetch(closest, own.high_watermark, rack=rack)
        assert await fetch(closest, rack=rack, isolation=1) == own
        waiting = asyncio.ensure_future(
            fetch(closest, own.last_stable_offset, rack=rack, isolation=1, wait_ms=30_000)
        )
        await asyncio.to_thread(producer.commit_transaction, 30)
        assert (await waiting).records


@pytest.mark.parametrize("policy", ["compact", "delete"])
@on_uvloop
async def test_a_replica_follows_the_segments_of_its_leader(tmp_path: Path, policy: str) -> None:
    settings = {**EAGER, "log.cleaner.backoff.ms": "50"}
    configs = {
        "cleanup.policy": policy,
        "min.cleanable.dirty.ratio": "0.01",
        "retention.bytes": "2000" if policy == "delete" else "-1",
    }
    async with cluster(tmp_path, RACKS, settings) as brokers:
        leader, closest, rack = await begin(brokers, configs)
        for at in range(60):
            await produce(leader, keyed(b"k%d" % (at % 5), b"%d" % at * 20))
            if at % 10 == 0:
                await fetch(closest, rack=rack)
        await until(lambda: log_of(leader).size_bytes < 4000)
        await stored(leader)
        await free(leader)


        async def both() -> list[list[Read]]:
            start = log_of(leader).log_start_offset
            return [await read(leader, start), await read(closest, start, rack)]

        own, _ = await fetched(both, lambda found: found[0] == found[1])
        assert own[-1][0] == 59
        assert len(own) < 59


@on_uvloop
async def test_a_replica_has_the_records_that_the_wal_has_forgotten_meanwhile(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, RACKS, EAGER) as brokers:
        leader, closest, rack = await begin(brokers)
        await produce(leader, keyed(b"k", b"0"))
        assert (await fetch(closest, rack=rack)).high_watermark == 1
        assert closest.replicas is not None
        async with closest.replicas._turn:  # it does not look at the WAL meanwhile
            await produce(leader, keyed(b"k", b"1"))
            await stored(leader)
            await free(leader)
        await fetched(lambda: fetch(closest, rack=rack), lambda found: found.high_watermark == 2)


@on_uvloop
async def test_a_replica_follows_the_next_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, RACKS) as brokers:
        leader, closest, rack = await begin(brokers)
        await produce(leader, keyed(b"k", b"0"))
        assert (await fetch(closest, rack=rack)).high_watermark == 1
        others = [one for one in brokers if one is not leader]
        await close_out(leader)
        found = await served_by_others(brokers, 0, leader)
        assert (await produce(found, keyed(b"k", b"1"))).base_offset == 1
        reader = next(one for one in others if one is not found)
        await fetched(lambda: fetch(reader, rack=rack), lambda found: found.high_watermark == 2)


@on_uvloop
async def test_a_replica_is_opened_though_its_client_has_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread would go on beside that of the next client, in the same directory."""
    begin_log, loop = Builder._begin, asyncio.get_running_loop()
    is_begun, has_gone = asyncio.Event(), threading.Event()

    def begin_late(builder: Builder, *args: Any) -> Log:
        loop.call_soon_threadsafe(is_begun.set)
        assert has_gone.wait(PATIENCE_S)
        return begin_log(builder, *args)

    async with cluster(tmp_path, RACKS) as brokers:
        leader, closest, _ = await begin(brokers)
        assert not (await produce(leader, keyed(b"a", b"1"))).error_code
        monkeypatch.setattr(Builder, "_begin", begin_late)
        topic, replicas = closest.topics.get("t"), closest.replicas
        assert topic is not None
        assert replicas is not None
        wanted = Wanted(topic.record, 0, topic.config, is_made=True)
        asking = asyncio.create_task(replicas.prepare({wanted.key: (wanted, 0)}))
        await is_begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        has_gone.set()
        await until(lambda: replica_of(closest) is not None)
        assert closest.sharing is not None
        assert closest.sharing.facts().counts.opened_replicas == 1


@on_uvloop
async def test_deleted_records_are_out_of_range_at_the_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, RACKS) as brokers:
        leader, closest, rack = await begin(brokers)
        for at in range(5):
            await produce(leader, keyed(b"k", b"%d" % at))
        await fetch(closest, rack=rack)
        assert (await delete_records(leader, 3)).low_watermark == 3
        found = await fetched(
            lambda: fetch(closest, 4, rack=rack), lambda found: found.log_start_offset == 3
        )
        assert found.records
        assert (await fetch(closest, 2, rack=rack)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@on_uvloop
async def test_librdkafka_reads_from_its_rack(tmp_path: Path) -> None:
    async with cluster(tmp_path, RACKS) as brokers:
        leader, closest, rack = await begin(brokers)
        count = 50
        for at in range(count):
            await produce(leader, keyed(b"k", b"%d" % at))

        def consume() -> list[bytes]:
            consumer = Consumer(
                {
                    "bootstrap.servers": address(leader),
                    "client.rack": rack,
                    "group.id": "g",
                    "auto.offset.reset": "earliest",
                }
            )
            try:
                consumer.subscribe(["t"])
                found: list[bytes] = []
                while len(found) < count:
                    message = consumer.poll(30)
                    assert message is not None
                    if message.error() is None:
                        found.append(message.value() or b"")
                return found
            finally:
                consumer.close()

        assert await asyncio.to_thread(consume) == [b"%d" % at for at in range(count)]
        sent = [one.metrics.all_topics.bytes_out for one in (leader, closest)]
        assert sent[0] == 0 < sent[1]
