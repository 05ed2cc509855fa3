"""Shared logs in the bucket: stored as segments, read back by any broker, cleaned and deleted."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog import segment_rows, wal_reading
from odradek.broker.catalog.segment_rows import Leadership, SegmentRow
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.composition import Broker
from odradek.broker.shared import exchanging, reading_back, uploads
from odradek.broker.shared.packing import Part
from odradek.broker.shared.tails import Tail
from odradek.broker.shared.uploads import Uploads
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import Record, encode_batch, iterate_batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.storage.errors import BucketFailure, StorageError
from odradek.storage.log import Log
from tests.broker.cleaning import alter_topic
from tests.broker.live import PATIENCE_S, client, create, on_uvloop, until
from tests.broker.test_cluster import SLOW, known_everywhere
from tests.broker.test_shared_topics import (
    by_producer,
    close_out,
    cluster,
    leader_of,
    produce,
    served_by_others,
)
from tests.support.requests import fetching, listing_offsets

# Records go into segments, and segments into the bucket, as soon as possible.
EAGER = {
    **SLOW,
    "odradek.wal.checkpoint.ms": "1",
    "odradek.object.delete.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
}
SMALL = {"internal.segment.bytes": "1000", "file.delete.delay.ms": "0"}


Read = tuple[int, bytes | None, bytes | None]
"""A record's offset, key and value."""


# A cleaning that was aborted is tried again at once.
RESTLESS = {**EAGER, "log.cleaner.backoff.ms": "10"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
# The records that put_updates() appends last.
LATEST = {b"k%d" % key: b"%d" % (75 + key) * 20 for key in range(5)}


def keyed(key: bytes, value: bytes | None, timestamp: int = 1) -> bytes:
    """Encode a batch of one record."""
    return encode_batch([Record(0, timestamp, key, value)])


async def records(broker: Broker, partition: int = 0) -> list[Read]:
    """Return all records as a consumer reads them."""
    found, offset = [], (await bounds(broker, partition))[0]
    async with client(broker) as there:
        while True:
            answer = await there.ask(
                fetching("t", offset, partition=partition, wait_ms=0), version=12
            )
            assert answer.responses, answer
            (part,) = answer.responses[0].partitions
            if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and not found:
                start = (await bounds(broker, partition))[0]
                assert start > offset, "the log has this offset"
                offset = start  # retention went on meanwhile
                continue
            assert not part.error_code
            data = part.records or b""
            before = offset
            for at, header in iterate_batches(data):
                if at + header.size_bytes > len(data):
                    break
                for one in decode_records(data[at : at + header.size_bytes]):
                    if one.offset >= before:
                        found.append((one.offset, one.key, one.value))
                offset = header.next_offset
            if offset == before:
                return found


async def bounds(broker: Broker, partition: int = 0) -> tuple[int, int]:
    """Return the first and the last offset."""
    async with client(broker) as there:
        found = [
            (await there.ask(listing_offsets({"t": [partition]}, at), version=7))
            .topics[0].partitions[0].offset
            for at in (-2, -1)
        ]  # fmt: skip
        return found[0], found[1]


async def delete_records(broker: Broker, offset: int) -> Any:
    """Delete the records before an offset, -1 for all; return the answer for the partition."""
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    topic = DeleteRecordsTopic(name="t", partitions=[asked])
    async with client(broker) as there:
        answer = await there.ask(
            DeleteRecordsRequest(topics=[topic], timeout_ms=1000), version=2
        )
        return answer.topics[0].partitions[0]


def log_of(broker: Broker, partition: int = 0) -> Log:
    topic = broker.topics.get("t")
    assert topic is not None
    log = topic.log(partition)
    assert log is not None
    return log


async def put_updates(broker: Broker) -> None:
    """Append records of five keys in turn, sixteen of each."""
    for at in range(80):
        answer = await produce(broker, keyed(b"k%d" % (at % 5), b"%d" % at * 20))
        assert answer.error_code == 0


async def stored(broker: Broker, partition: int = 0) -> None:
    """Wait until the bucket has all that is committed."""
    log = log_of(broker, partition)
    assert broker._cluster._sharing is not None
    uploads = broker._cluster._sharing.uploads
    tail = uploads._tails[log.topic_id, partition]

    def all_is_stored() -> bool:
        uploads._wake.set()  # now, not in a second
        return tail.stored_offset == log.high_watermark

    await until(all_is_stored)


async def free(broker: Broker) -> None:
    """Free the WAL, and delete garbage."""
    assert broker._cluster._sharing is not None
    await broker._cluster._sharing.janitor.free_wal()
    await broker._cluster._sharing.janitor.delete_garbage()


def rows(path: Path, query: str) -> list[Any]:
    with sqlite3.connect(path / "catalog.db") as database:
        return database.execute(query).fetchall()


def url_of(path: Path) -> str:
    return f"sqlite://{path / 'catalog.db'}"


async def begin(brokers: Sequence[Broker], configs: dict[str, str] | None = None) -> Broker:
    """Create a topic; return its leader."""
    await create(brokers[0], "t", 1, {**SMALL, "retention.ms": "-1", **(configs or {})})
    await known_everywhere(brokers, "t")
    leader = leader_of(brokers)
    assert leader is not None
    return leader


@pytest.mark.parametrize("count", [1, 3, 40])
@on_uvloop
async def test_a_log_comes_back_from_its_segments_without_the_wal(
    tmp_path: Path, count: int
) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 2, EAGER) as brokers:
        former = await begin(brokers)
        for at in range(count):
            answer = await produce(former, keyed(b"k%d" % at, b"v" * 100, at))
            assert answer.error_code == 0
        await stored(former)
        read = await records(former)
        await free(former)
        assert rows(tmp_path, "SELECT count(*) FROM wal_entry") == [(0,)]
        before = log_of(former)
        epochs, sizes = before.epochs, before.size_bytes
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        assert await records(leader) == read
        log = log_of(leader)
        assert (log.log_end_offset, log.size_bytes) == (count, sizes)
        assert log.epochs[: len(epochs)] == epochs
        (asked,) = [await produce(leader, keyed(b"more", b"v"))]
        assert asked.base_offset == count
        async with client(leader) as there:
            listed = await there.ask(listing_offsets({"t": [0]}, count // 2), version=7)
            assert listed.topics[0].partitions[0].offset == count // 2


@on_uvloop
async def test_producers_are_known_from_a_snapshot(tmp_path: Path) -> None:
    value = b"v" * 100
    async with cluster(tmp_path, url_of(tmp_path), 2, EAGER) as brokers:
        former = await begin(brokers)
        for at in range(20):
            assert (await produce(former, by_producer(value, at))).base_offset == at
        await stored(former)
        log_of(former).roll(0)
        await until(lambda: rows(tmp_path, "SELECT count(*) FROM segment WHERE is_open") == [(0,)])
        await free(former)
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        assert (await produce(leader, by_producer(value, 19))).base_offset == 19
        assert (await produce(leader, by_producer(value, 20))).base_offset == 20


@pytest.mark.parametrize("is_rolled", [True, False])
@on_uvloop
async def test_producers_are_known_after_all_records_are_deleted(
    tmp_path: Path, is_rolled: bool
) -> None:
    value = b"v" * 100
    async with cluster(tmp_path, url_of(tmp_path), 2, EAGER) as brokers:
        former = await begin(brokers)
        for at in range(20):
            assert (await produce(former, by_producer(value, at))).base_offset == at
        await stored(former)
        log = log_of(former)
        if is_rolled:
            log.roll(0)
            await stored(former)
        assert (await delete_records(former, -1)).low_watermark == 20
        if is_rolled:
            # Nothing of the deleted records stays: a row without records has the producers.
            query = "SELECT base_offset, next_offset, size_bytes FROM segment"
            await until(lambda: rows(tmp_path, query) == [(20, 20, 0)])
        await free(former)
        assert rows(tmp_path, "SELECT count(*) FROM wal_entry") == [(0,)]
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        assert (await produce(leader, by_producer(value, 19))).base_offset == 19
        assert (await produce(leader, by_producer(value, 20))).base_offset == 20
        assert await bounds(leader) == (20, 21)


@on_uvloop
async def test_a_log_is_opened_again_once_its_upload_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = threading.Event(), threading.Event()
    add, release, read = segment_rows.add_segments, Uploads.release, wal_reading.read_wal

    def add_late(*args: Any, **options: Any) -> None:
        begun.set()
        assert gate.wait(PATIENCE_S)
        add(*args, **options)

    async def release_and_go_on(self: Uploads, keys: Any) -> None:
        gate.set()
        await release(self, keys)

    async def read_when_trimmed(*args: Any) -> AsyncIterator[Any]:
        gate.set()
        await until(lambda: rows(tmp_path, "SELECT max(next_offset) FROM segment") == [(2,)])
        await free(one)
        async for found in read(*args):
            yield found

    async with cluster(tmp_path, url_of(tmp_path), 1, EAGER) as (one,):
        await begin([one])
        await produce(one, keyed(b"k", b"0"))
        await stored(one)
        monkeypatch.setattr(uploads, "add_segments", add_late)
        monkeypatch.setattr(Uploads, "release", release_and_go_on)
        monkeypatch.setattr(reading_back, "read_wal", read_when_trimmed)
        await produce(one, keyed(b"k", b"1"))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        log = log_of(one)
        one.disks.take_offline(log, BucketFailure("it is to be opened again"))
        await until(lambda: leader_of([one]) is one)
        assert log_of(one) is not log
        assert [offset for offset, _, _ in await records(one)] == [0, 1]


@on_uvloop
async def test_garbage_goes_and_nothing_else(tmp_path: Path) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 1, EAGER) as (one,):
        await begin([one])
        for at in range(30):
            await produce(one, keyed(b"k", b"%d" % at * 50))
            await stored(one)
        await free(one)
        named = {key for (key,) in rows(tmp_path, "SELECT DISTINCT key FROM segment")}
        bucket = tmp_path / "bucket"
        there = {str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file()}
        assert there == named
        assert rows(tmp_path, "SELECT count(*) FROM garbage") == [(0,)]
        read = await records(one)
        assert [offset for offset, _, _ in read] == list(range(30))


@on_uvloop
async def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 3, EAGER) as brokers:
        former = await begin(brokers, {"internal.segment.bytes": "300"})
        for at in range(20):
            await produce(former, keyed(b"k%d" % at, b"v" * 100))
        assert (await delete_records(former, 7)).low_watermark == 7
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        assert await bounds(leader) == (7, 20)
        assert [offset for offset, _, _ in await records(leader)] == list(range(7, 20))
        # All of them, and the WAL forgets them, too.
        assert (await delete_records(leader, -1)).low_watermark == 20
        await free(leader)
        await close_out(leader)
        others = [one for one in brokers if one is not former]
        leader = await served_by_others(others, 0, leader)
        assert await bounds(leader) == (20, 20)
        assert (await produce(leader, keyed(b"k", b"v"))).base_offset == 20


@on_uvloop
async def test_a_deletion_that_the_next_leader_does_not_know_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 1) as (one,):
        await begin([one])
        await produce(one, keyed(b"k", b"v"))
        store = Uploads.store_starts

        async def store_too_late(self: Uploads, *args: Any) -> list[Log]:
            one.disks.take_offline(log_of(one), BucketFailure("it is to be opened again"))
            return await store(self, *args)

        monkeypatch.setattr(Uploads, "store_starts", store_too_late)
        found = await delete_records(one, 1)
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await until(lambda: leader_of([one]) is one)
        assert await bounds(one) == (0, 1)


@on_uvloop
async def test_retention_deletes_segments_for_good(tmp_path: Path) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 2, EAGER) as brokers:
        former = await begin(brokers, {"retention.bytes": "2000"})
        for at in range(60):
            await produce(former, keyed(b"k%d" % at, b"v" * 100))
        await stored(former)
        await until(lambda: log_of(former).size_bytes < 4000)
        start, end = await bounds(former)
        assert (start > 0, end) == (True, 60)
        query = "SELECT log_start_offset FROM partition WHERE number = 0 AND log_start_offset > 0"
        await until(lambda: rows(tmp_path, query) != [])
        await free(former)
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        assert (await bounds(leader))[0] > 0
        assert {offset for offset, _, _ in await records(leader)} >= set(range(50, 60))


@on_uvloop
async def test_a_cleaned_log_is_cleaned_for_the_next_leader(tmp_path: Path) -> None:
    settings = {**EAGER, "log.cleaner.backoff.ms": "50"}
    async with cluster(tmp_path, url_of(tmp_path), 2, settings) as brokers:
        former = await begin(brokers, COMPACTED)
        await put_updates(former)
        await until(lambda: log_of(former).size_bytes < 4000)
        await stored(former)

        def is_settled() -> bool:
            """Whether the catalog has the segments of the log."""
            found = rows(tmp_path, "SELECT base_offset FROM segment WHERE NOT is_open ORDER BY 1")
            bases = [one.base_offset for one in log_of(former).segments[:-1]]
            return [base for (base,) in found] == bases

        await until(is_settled)
        home = former.partitions.home_of(log_of(former))
        query = "SELECT max(cleaner_offset) FROM partition"
        await until(lambda: rows(tmp_path, query) == [(home.cleaner_offsets["t", 0],)])
        read = await records(former)
        assert {key: value for _, key, value in read} == LATEST
        assert former.sharing is not None
        assert former.sharing.facts().counts.exchanged_segments > 0
        await free(former)
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        found = await records(leader)
        assert {key: value for _, key, value in found} == {key: value for _, key, value in read}
        assert len(found) <= len(read)
        assert leader.partitions.home_of(log_of(leader)).cleaner_offsets["t", 0] > 0


@on_uvloop
async def test_a_log_follows_the_catalog_though_its_cleaning_was_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = segment_rows.exchange_segments
    async with cluster(tmp_path, url_of(tmp_path), 1, RESTLESS) as (one,):

        def exchange_and_abort(*args: Any, **options: Any) -> None:
            exchange(*args, **options)
            one.cleaner.abort("t", 0)

        monkeypatch.setattr(exchanging, "exchange_segments", exchange_and_abort)
        await begin([one], COMPACTED)
        log = log_of(one)
        await put_updates(one)
        await until(lambda: log.size_bytes < 4000 or log.is_closed)
        assert not log.is_closed
        assert {key: value for _, key, value in await records(one)} == LATEST


@on_uvloop
async def test_a_cleaned_segment_is_deleted_if_its_cleaning_is_aborted_after_the_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 1, EAGER) as (one,):
        packed: list[SegmentRow] = []
        pack = Uploads.pack

        async def pack_and_abort(self: Uploads, parts: Sequence[Part]) -> list[SegmentRow]:
            packed.extend(made := await pack(self, parts))
            if len(packed) == 1:
                one.cleaner.abort("t", 0)
            return made

        monkeypatch.setattr(Uploads, "pack", pack_and_abort)
        await begin([one], COMPACTED)
        log = log_of(one)
        one.cleaner.pause("t", 0)
        await put_updates(one)
        one.cleaner.resume("t", 0)
        await until(lambda: log.size_bytes < 4000)  # by the next cleaning

        await until(partial(has_only_segments, one, tmp_path))


@on_uvloop
async def test_a_cleaned_segment_is_deleted_if_its_session_ends_after_the_upload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 1, RESTLESS) as (one,):
        is_closed, pack, turn_of = False, Uploads.pack, Uploads.turn_of

        async def pack_and_close(self: Uploads, parts: Sequence[Part]) -> list[SegmentRow]:
            nonlocal is_closed
            is_closed = True
            return await pack(self, parts)

        @asynccontextmanager
        async def turn_while_open(
            self: Uploads, log: Log
        ) -> AsyncIterator[tuple[Tail, Leadership]]:
            if is_closed:
                raise SessionClosed("the session was closed")
            async with turn_of(self, log) as found:
                yield found

        monkeypatch.setattr(Uploads, "pack", pack_and_close)
        monkeypatch.setattr(Uploads, "turn_of", turn_while_open)
        await begin([one], COMPACTED)
        await put_updates(one)
        await until(lambda: one.cleaner.status().quarantined)
        assert is_closed
        await until(partial(has_only_segments, one, tmp_path))


async def has_only_segments(broker: Broker, place: Path) -> bool:
    """Delete garbage; return whether all objects of segments are named by the catalog."""
    await free(broker)
    bucket = place / "bucket"
    files = [path for path in (bucket / "segments").rglob("*") if path.is_file()]
    named = rows(place, "SELECT DISTINCT key FROM segment")
    return {(str(path.relative_to(bucket)),) for path in files} == set(named)


@on_uvloop
async def test_retention_beside_the_exchange_of_cleaned_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention deletes segments that the catalog has exchanged, and the log has not."""
    exchange, loop = segment_rows.exchange_segments, asyncio.get_running_loop()
    configs = {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.01",
        "retention.ms": "-1",
    }
    async with cluster(tmp_path, url_of(tmp_path), 1, EAGER) as (one,):
        deleted: list[int] = []

        async def delete() -> None:
            deleted.append(log.delete_segments(1, 0))

        def exchange_and_delete(*args: Any, **options: Any) -> None:
            exchange(*args, **options)
            if len(options["old"]) > 1 and not deleted:
                asyncio.run_coroutine_threadsafe(delete(), loop).result()

        monkeypatch.setattr(exchanging, "exchange_segments", exchange_and_delete)
        await begin([one], configs)
        log = log_of(one)
        one.cleaner.pause("t", 0)
        await put_updates(one)
        async with client(one) as there:  # several segments become one
            await alter_topic(there, "t", {"internal.segment.bytes": "100000"})
        one.cleaner.resume("t", 0)
        await until(lambda: log.is_closed or (deleted and log.size_bytes < 4000))
        assert not log.is_closed
        assert {key: value for _, key, value in await records(one)} == LATEST
        assert (await produce(one, keyed(b"k", b"v"))).base_offset == 80


@on_uvloop
async def test_a_deleted_topic_leaves_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 2, EAGER) as brokers:
        leader = await begin(brokers)
        for at in range(30):
            await produce(leader, keyed(b"k%d" % at, b"v" * 100))
        await stored(leader)
        await brokers[0].topics.delete([log_of(leader).topic_id])
        await until(lambda: all(one.topics.get("t") is None for one in brokers))
        await free(leader)
        assert rows(tmp_path, "SELECT count(*) FROM segment") == [(0,)]
        await until(lambda: rows(tmp_path, "SELECT count(*) FROM wal_entry") == [(0,)])
        bucket = tmp_path / "bucket"
        assert not [path for path in bucket.rglob("*") if path.is_file()]
        for one in brokers:
            assert not list((tmp_path / str(one.node_id) / "data").glob("odradek-cache.*/t-0"))
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["segment", "entry"])
@on_uvloop
async def test_a_lost_object_concerns_its_partition_alone(tmp_path: Path, kind: str) -> None:
    settings = {**SLOW, "odradek.wal.inline.bytes.max": "0"}
    if kind == "segment":
        settings |= EAGER
    async with cluster(tmp_path, url_of(tmp_path), 2, settings) as brokers:
        await create(brokers[0], "t", 4, SMALL | {"retention.ms": "-1"})
        await known_everywhere(brokers, "t")
        former = brokers[0]
        lost, kept = (log.partition for log in former.topics.get("t").logs)  # type: ignore[union-attr]
        bucket = tmp_path / "bucket"
        for partition in (lost, kept):
            assert (await produce(former, keyed(b"k", b"v"), partition)).error_code == 0
            if kind == "segment":
                await stored(former, partition)
            if partition == lost:
                await free(former)
                (path,) = [path for path in bucket.rglob("0*") if path.is_file()]
        path.unlink()
        await close_out(former)
        other = brokers[1]
        await until(lambda: len(other.topics.get("t").partitions) == 4)  # type: ignore[union-attr]
        await until(lambda: leader_of([other], kept) is other)
        assert len(await records(other, kept)) == 1
        with pytest.raises(StorageError, match=path.name):
            other.topics.get("t").log(lost)  # type: ignore[union-attr]
        assert any(path.name in problem for problem in other.problems()), other.problems()
