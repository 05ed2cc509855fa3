"""Small segments of shared topics become few, and nobody who reads or deletes notices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog import segment_rows
from odradek.broker.catalog.segment_rows import StoredLog, segments_of
from odradek.broker.composition import Broker
from odradek.broker.shared import exchanging, merging, uploads
from odradek.broker.shared.merging import Merging
from odradek.broker.shared.packing import packed_segment
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import Record, encode_batch, iterate_batches
from odradek.storage.errors import DiskFailure, StorageError
from odradek.storage.log import Log
from odradek.storage.objects.packs import EPOCHS
from odradek.storage.objects.store import StoreUnavailable
from odradek.storage.segment import SNAPSHOT
from odradek.storage.transactions import Marker
from tests.broker import test_closest as racks
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.cleaning import alter_topic
from tests.broker.live import client, on_uvloop, until
from tests.broker.test_shared_segments import (
    EAGER,
    Read,
    begin,
    bounds,
    delete_records,
    free,
    keyed,
    log_of,
    records,
    rows,
    stored,
    url_of,
)
from tests.broker.test_shared_topics import (
    by_producer,
    close_out,
    cluster,
    produce,
    served_by_others,
)
from tests.support.requests import fetching, listing_offsets, producing

# Segments are sealed by the tests, and merged when they say so.
LARGE = {"internal.segment.bytes": str(1 << 30)}
HOURLY = {**EAGER, "log.retention.check.interval.ms": "3600000"}


@pytest.fixture(autouse=True)
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_LOOK_S", 3600.0)


async def merge(broker: Broker) -> bool:
    assert broker.sharing is not None
    return await broker.sharing.merging.merge_all(broker.cleaner)


def merged(broker: Broker) -> int:
    assert broker.sharing is not None
    return broker.sharing.facts().counts.merged_segments


async def seal(broker: Broker, count: int, first: int = 0, batches: int = 1) -> None:
    """Append records whose timestamps are their offsets, and store them in segments."""
    log = log_of(broker)
    async with client(broker) as there:
        for at in range(first, first + count):
            for number in range(at * batches, (at + 1) * batches):
                data = keyed(b"k%d" % number, b"v" * 100, number)
                answer = await there.ask(producing("t", data), version=9)
                assert not answer.responses[0].partition_responses[0].error_code
            log.roll(0)
    await sealed(broker)


async def sealed(broker: Broker) -> None:
    """Wait until the bucket has all sealed segments as such."""
    log = log_of(broker)
    assert broker.sharing is not None
    tail = broker.sharing.uploads._tails[log.topic_id, log.partition]
    await until(lambda: len(tail.sealed_rows) == len(log.segments) - 1)


async def rows_of(broker: Broker) -> StoredLog:
    """Return what the catalog has of the partition."""
    assert broker.sharing is not None
    log, line = log_of(broker), broker.sharing._lines[1]
    key = log.topic_id, log.partition
    found = await line.read(lambda to: segments_of(to, [key]))
    return found[key]


async def agree(broker: Broker) -> list[tuple[int, int]]:
    """Check that log and catalog have the same sealed segments; return their offsets."""
    log = log_of(broker)
    found = [
        (one.base_offset, one.next_offset)
        for one in (await rows_of(broker)).segments
        if not one.is_open and one.next_offset > log.log_start_offset
    ]
    sealed = [one.base_offset for one in log.segments[:-1]]
    assert sealed == [base for base, _ in found]
    return found


@on_uvloop
async def test_a_trickle_ends_in_few_segments_that_all_can_read(
    tmp_path: Path, catalog_url: str
) -> None:
    async with cluster(tmp_path, catalog_url, 2, EAGER) as brokers:
        former = await begin(brokers, LARGE)
        for part in range(4):
            await seal(former, 50, part * 50, batches=2)
            assert await merge(former)
        read = await records(former)
        assert [offset for offset, _, _ in read] == list(range(400))
        assert len(await agree(former)) <= 12
        assert merged(former) > 180
        await free(former)
        found = await rows_of(former)
        bucket = tmp_path / "bucket"
        there = {str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file()}
        assert there == {one.key for one in found.segments}
        assert len(there) <= 13
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        assert await records(leader) == read
        async with client(leader) as one:
            for at in (0, 140, 399):
                listed = await one.ask(listing_offsets({"t": [0]}, at), version=7)
                assert listed.topics[0].partitions[0].offset == at
        # It goes on with what it has been left.
        await seal(leader, 30, 200, batches=2)
        assert await merge(leader)
        assert len(await agree(leader)) <= 14
        assert [offset for offset, _, _ in await records(leader)] == list(range(460))


@on_uvloop
async def test_segments_are_merged_without_being_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_LOOK_S", 0.01)
    async with cluster(tmp_path, url_of(tmp_path), 1, EAGER) as (one,):
        await begin([one], LARGE)
        await seal(one, 20)
        await until(lambda: len(log_of(one).segments) < 10)
        assert [offset for offset, _, _ in await records(one)] == list(range(20))


@on_uvloop
async def test_all_segments_are_merged_though_a_few_are_looked_at_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_ROWS_MAX", 20)
    async with cluster(tmp_path, url_of(tmp_path), 1, EAGER) as (one,):
        await begin([one], LARGE)
        await seal(one, 150)
        assert await merge(one)
        assert len(await agree(one)) < 12
        assert [offset for offset, _, _ in await records(one)] == list(range(150))


@on_uvloop
async def test_a_topic_that_is_compacted_is_left_to_the_cleaner(tmp_path: Path) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 1, HOURLY) as (one,), client(one) as there:
        await begin([one], {**LARGE, "cleanup.policy": "compact,delete"})
        one.cleaner.pause("t", 0)
        await seal(one, 20)
        assert await merge(one)
        assert merged(one) == 0
        await alter_topic(there, "t", {"cleanup.policy": "delete"})
        await seal(one, 1, 20)
        assert await merge(one)
        assert merged(one) == 21
        assert len(await agree(one)) == 1


@on_uvloop
async def test_the_cleaner_waits_for_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that becomes compacted while its segments are merged."""
    async with cluster(tmp_path, url_of(tmp_path), 1, HOURLY) as (one,), client(one) as there:
        await begin([one], LARGE)
        await seal(one, 20)
        exchange = exchanging.exchange_stored

        async def exchange_beside(*args: Any) -> None:
            compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
            await alter_topic(there, "t", compact)
            progress = one.cleaner.scheduler.progress
            assert not progress.may_clean(log_of(one), 0)
            await exchange(*args)

        monkeypatch.setattr(merging, "exchange_stored", exchange_beside)
        assert await merge(one)
        assert merged(one) == 20
        home = one.partitions.home_of(log_of(one))
        one.cleaner.wake()
        await until(lambda: home.cleaner_offsets.get(("t", 0)) == 20)
        assert len(await agree(one)) == 1
        assert len(await records(one)) == 20


def in_between(
    monkeypatch: pytest.MonkeyPatch, happen: Callable[[], Any], *, when: str
) -> None:
    """Let something happen on the loop during a merge: before the exchange, or beside it."""
    if when == "written":
        write = Merging._write

        def write_and_let(self: Merging, *args: Any) -> Any:
            made = write(self, *args)
            loop.call_soon_threadsafe(happen)
            return made

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(Merging, "_write", write_and_let)
        return
    exchange = segment_rows.exchange_segments

    def exchange_and_let(*args: Any, **options: Any) -> None:
        exchange(*args, **options)
        done = asyncio.run_coroutine_threadsafe(_call(happen), loop)
        done.result()

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(exchanging, "exchange_segments", exchange_and_let)


async def _call(function: Callable[[], Any]) -> None:
    function()


@pytest.mark.parametrize("when", ["written", "exchanged"])
@pytest.mark.parametrize("count", [5, 20])
@on_uvloop
async def test_retention_in_the_middle_of_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, count: int
) -> None:
    """It deletes some of the segments, or all of them."""
    async with cluster(tmp_path, url_of(tmp_path), 2, HOURLY) as brokers:
        former = await begin(brokers, LARGE)
        log = log_of(former)
        await seal(former, 20)
        deleted: list[int] = []

        def delete() -> None:
            if not deleted:
                deleted.append(log.delete_segments(count, 0))

        in_between(monkeypatch, delete, when=when)
        assert await merge(former)
        assert deleted[0] > 0
        assert await merge(former)  # what is left, if nothing was merged before
        assert not log.is_closed
        assert await bounds(former) == (count, 20)
        read = await records(former)
        assert [offset for offset, _, _ in read] == list(range(count, 20))
        assert former.sharing is not None
        await former.sharing.logs.store_starts({log: count})
        await stored(former)
        if count < 20:
            # The catalog has had all of them before, or what retention has left.
            assert await agree(former) == [(0 if when == "exchanged" else count, 20)]
        assert not former.sharing.problems()
        assert (await produce(former, keyed(b"k", b"v"))).base_offset == 20
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        assert await bounds(leader) == (count, 21)
        assert [offset for offset, _, _ in await records(leader)] == list(range(count, 21))


@pytest.mark.parametrize("when", ["written", "exchanged"])
@on_uvloop
async def test_records_are_deleted_in_the_middle_of_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 2, EAGER) as brokers:
        former = await begin(brokers, LARGE)
        await seal(former, 20)
        asked: list[asyncio.Future[Any]] = []

        def delete() -> None:
            if not asked:
                asked.append(asyncio.ensure_future(delete_records(former, 7)))

        in_between(monkeypatch, delete, when=when)
        assert await merge(former)
        assert (await asked[0]).low_watermark == 7
        assert await merge(former)
        assert [offset for offset, _, _ in await records(former)] == list(range(7, 20))
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        assert await bounds(leader) == (7, 20)
        assert [offset for offset, _, _ in await records(leader)] == list(range(7, 20))


@pytest.mark.parametrize("when", ["written", "exchanged"])
@on_uvloop
async def test_another_broker_leads_in_the_middle_of_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 2, EAGER) as brokers:
        former = await begin(brokers, LARGE)
        await seal(former, 20)
        read = await records(former)
        asked: list[asyncio.Future[None]] = []

        def lose() -> None:
            if not asked:
                asked.append(asyncio.ensure_future(close_out(former)))

        if when == "exchanged":
            in_between(monkeypatch, lose, when=when)
        else:
            exchange = exchanging.exchange_stored

            async def exchange_late(*args: Any) -> None:
                lose()
                await asked[0]
                await exchange(*args)

            monkeypatch.setattr(merging, "exchange_stored", exchange_late)
        await merge(former)
        leader = await served_by_others(brokers, 0, former)
        assert await records(leader) == read
        assert len(await agree(leader)) == (1 if when == "exchanged" else 20)
        assert await merge(leader)
        assert len(await agree(leader)) == 1
        assert await records(leader) == read
        assert (await produce(leader, keyed(b"k", b"v"))).base_offset == 20


@pytest.mark.parametrize("when", ["written", "exchanged"])
@on_uvloop
async def test_a_topic_is_deleted_in_the_middle_of_a_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 1, EAGER) as (one,):
        await begin([one], LARGE)
        await seal(one, 20)
        topic_id, asked = log_of(one).topic_id, list[asyncio.Future[Any]]()

        def delete() -> None:
            if not asked:
                asked.append(asyncio.ensure_future(one.topics.delete([topic_id])))

        exchange = exchanging.exchange_stored

        async def exchange_late(*args: Any) -> None:
            delete()
            await asked[0]
            await exchange(*args)

        if when == "exchanged":
            in_between(monkeypatch, delete, when=when)
        else:
            monkeypatch.setattr(merging, "exchange_stored", exchange_late)
        assert await merge(one)
        await asked[0]
        await free(one)
        assert rows(tmp_path, "SELECT count(*) FROM segment") == [(0,)]
        await until(lambda: rows(tmp_path, "SELECT count(*) FROM wal_entry") == [(0,)])
        assert not [path for path in (tmp_path / "bucket").rglob("*") if path.is_file()]
        assert one.sharing is not None
        assert not one.sharing.problems()


@on_uvloop
async def test_consumers_go_on_reading_while_segments_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the leader, and at a broker of another rack, which opens its replica again."""
    async with racks.cluster(tmp_path, racks.RACKS, EAGER) as brokers:
        leader, closest, rack = await racks.begin(brokers, LARGE)
        await seal(leader, 100)
        whole = await records(leader)
        assert await racks.read(closest, 0, rack) == whole
        readings: list[asyncio.Task[list[Read]]] = []

        def begin_to_read() -> None:
            readings.append(asyncio.ensure_future(records(leader)))
            readings.append(asyncio.ensure_future(racks.read(closest, 0, rack)))

        in_between(monkeypatch, begin_to_read, when="exchanged")
        begin_to_read()
        assert await merge(leader)
        begin_to_read()
        assert len(await agree(leader)) < 10
        assert len(readings) >= 6
        for one in readings:
            assert await one == whole

        async def is_opened_again() -> bool:
            assert await racks.read(closest, 0, rack) == whole
            replica = racks.replica_of(closest)
            return replica is not None and len(replica.segments) < 12

        await until(is_opened_again)
        await free(leader)
        assert await racks.read(closest, 0, rack) == whole


@on_uvloop
async def test_a_log_that_cannot_follow_the_catalog_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 1, EAGER) as (one,):
        await begin([one], LARGE)
        await seal(one, 20)
        before, begin_exchange = log_of(one), Log.begin_exchange
        read = await records(one)

        def refuse(self: Log, *args: Any) -> Any:
            monkeypatch.setattr(Log, "begin_exchange", begin_exchange)
            raise DiskFailure(self.directory, OSError(5, "it is broken"))

        monkeypatch.setattr(Log, "begin_exchange", refuse)
        await merge(one)
        assert before.is_closed
        await until(lambda: bool(one.topics.get("t").logs))  # type: ignore[union-attr]
        assert log_of(one) is not before
        assert len(await agree(one)) == 1
        assert await records(one) == read


@on_uvloop
async def test_a_merge_that_fails_is_shown_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, url_of(tmp_path), 1, EAGER) as (one,):
        await begin([one], LARGE)
        await seal(one, 20)
        pack = uploads.Uploads.pack
        failure: StoreUnavailable | StorageError = StoreUnavailable("create: no connection")

        async def refuse(*args: Any) -> Any:
            raise failure

        monkeypatch.setattr(uploads.Uploads, "pack", refuse)
        assert not await merge(one)
        assert one.sharing is not None
        assert one.sharing.problems() == ["small segments are not merged: create: no connection"]
        assert one.sharing.facts().obstacles["merge"]
        directory = log_of(one).directory
        assert not list(directory.glob("*.cleaned"))
        monkeypatch.setattr(uploads.Uploads, "pack", pack)
        assert await merge(one)
        assert not one.sharing.problems()
        assert len(await agree(one)) == 1
        assert [offset for offset, _, _ in await records(one)] == list(range(20))


@on_uvloop
async def test_producers_are_known_after_a_merge(tmp_path: Path) -> None:
    """Also where a log was built from the bucket: the disk has its last snapshot only."""
    async with cluster(tmp_path, url_of(tmp_path), 3, EAGER) as brokers:
        leader, others = await begin(brokers, {**LARGE, "segment.ms": "3600000"}), list(brokers)
        for at in range(8):
            assert (await produce(leader, by_producer(b"v", at))).base_offset == at
            log_of(leader).roll(0)
        # Segments an hour apart do not become one, so those before are merged.
        await produce(leader, keyed(b"k", b"v", time.time_ns() // 1_000_000))
        log_of(leader).roll(0)
        await sealed(leader)
        await close_out(leader)
        others.remove(leader)
        leader = await served_by_others(others, 0, leader)
        assert await merge(leader)
        assert await agree(leader) == [(0, 8), (8, 9)]
        for row in (await rows_of(leader)).segments:
            assert {SNAPSHOT, EPOCHS} <= packed_segment(row).files.keys()
        await close_out(leader)
        others.remove(leader)
        leader = await served_by_others(others, 0, leader)
        assert (await produce(leader, by_producer(b"v", 7))).base_offset == 7
        assert (await produce(leader, by_producer(b"v", 8))).base_offset == 9


async def committed(broker: Broker) -> list[int]:
    """Return the offsets that a read_committed consumer gets, by single fetches."""
    found, offset = [], 0
    async with client(broker) as there:
        while True:
            asked = fetching("t", offset, wait_ms=0)
            asked.isolation_level = 1
            answer = await there.ask(asked, version=12)
            (part,) = answer.responses[0].partitions
            data, before = part.records or b"", offset
            waiting = sorted(
                ((one.first_offset, one.producer_id) for one in part.aborted_transactions or ()),
                reverse=True,
            )
            ignored: set[int] = set()
            for at, header in iterate_batches(data):
                if at + header.size_bytes > len(data):
                    break
                while waiting and waiting[-1][0] <= header.last_offset:
                    ignored.add(waiting.pop()[1])
                if header.is_control:
                    ignored.discard(header.producer_id)
                elif header.producer_id not in ignored:
                    batch = data[at : at + header.size_bytes]
                    found += [one.offset for one in decode_records(batch)]
                offset = header.next_offset
            if offset == before:
                return found


@on_uvloop
async def test_transactions_across_merged_segments(tmp_path: Path, catalog_url: str) -> None:
    async with cluster(tmp_path, catalog_url, 2, EAGER) as brokers:
        former = await begin(brokers, LARGE)
        log, wanted = log_of(former), []
        for at in range(12):
            data = encode_batch(
                [Record(0, at, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=at,
                transactional=True,
            )  # fmt: skip
            log.append(data, now_ms=at)
            if at % 2 == 0:
                wanted.append(log.log_end_offset - 1)
            log.roll(0)
            log.append_marker(Marker(7, 0, 0, at % 2 == 0, at))
            log.roll(0)
        await sealed(former)
        assert await committed(former) == wanted
        assert await merge(former)
        assert len(await agree(former)) == 1
        assert await committed(former) == wanted
        await close_out(former)
        leader = await served_by_others(brokers, 0, former)
        assert await committed(leader) == wanted
