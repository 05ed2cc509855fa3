"""Shared topics are read from the bucket and the catalog as their brokers serve them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the pipeline extra")

from confluent_kafka import Producer

from odradek.broker.catalog.engines import open_engine
from odradek.broker.composition import Broker
from odradek.broker.shared import snapshot
from odradek.broker.shared.tails import StoringLimits
from odradek.pipeline import segment_batches, segment_finding, shared_bytes
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_arrow import arrow_schema
from odradek.pipeline.segment_files import prune
from odradek.pipeline.segment_finding import find_segments, tasks_of
from odradek.pipeline.segment_rows import read_segments
from odradek.pipeline.segment_selection import Selection, parse_options
from odradek.pipeline.shared_segments import find_shared_logs
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.filled_bucket import (
    PARTITIONS,
    SETTINGS,
    SIZES,
    STORED,
    Place,
    fill,
    sequenced,
    sharing,
)
from tests.broker.live import PATIENCE_S, create, on_uvloop
from tests.broker.test_cluster import known_everywhere
from tests.broker.test_shared_segments import (
    SMALL,
    Read,
    bounds,
    delete_records,
    free,
    log_of,
    records,
    stored,
)
from tests.broker.test_shared_topics import cluster, leader_of, produce
from tests.pipeline.segments import Row, read_by


def options(place: Path, url: str, **others: object) -> dict[str, str]:
    given = {"catalog": url, "odradek.object.store.url": f"file://{place / 'bucket'}"}
    return given | {name: str(value) for name, value in others.items()}


def by_partition(rows: list[Row], number: int) -> list[tuple[int, bytes, bytes]]:
    found = [
        (one["offset"], one["key"], one["value"]) for one in rows if one["partition"] == number
    ]
    return sorted(found)


@asynccontextmanager
async def serving(
    place: Path, url: str, partition: int
) -> AsyncIterator[tuple[Broker, list[Read]]]:
    """Run a filled cluster; lend the leader of a partition, and the records that it serves."""
    async with cluster(place, url, 2, SETTINGS) as brokers:
        await fill(brokers)
        leader = leader_of(brokers, partition)
        assert leader is not None
        yield leader, await records(leader, partition)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let groups, blocks and chunks be so small that there are several of each."""
    monkeypatch.setattr(snapshot, "_GROUP_BYTES", 600)
    monkeypatch.setattr(segment_finding, "_TASK_BYTES", 2_000)
    monkeypatch.setattr(shared_bytes, "_BLOCK_BYTES", 300)
    monkeypatch.setattr(segment_batches, "CHUNK_BYTES", 500)


@pytest.mark.parametrize("sizes", ["usual", "small"])
def test_the_snapshot_has_what_consumers_read(
    tmp_path: Path, catalog_url: str, sizes: str, request: pytest.FixtureRequest
) -> None:
    if sizes == "small":
        request.getfixturevalue("small_parts")

    @on_uvloop
    async def run() -> None:
        async with cluster(tmp_path, catalog_url, 2, SETTINGS) as brokers:
            await fill(brokers)
            leaders = [leader_of(brokers, number) for number in range(PARTITIONS)]
            served = [await records(one, number) for number, one in enumerate(leaders) if one]
            given = options(tmp_path, catalog_url, topic="t")
            rows = await asyncio.to_thread(read_by, given)
            assert [by_partition(rows, number) for number in range(PARTITIONS)] == served
            assert len(served[0]) == STORED + len(SIZES[0])
            tasks = plan(given)
            parts = [one.shared.part for task in tasks for one in task if one.shared]
            assert {piece.body is None for one in parts for piece in one.pieces} == {True, False}
            assert len(tasks) > 1 if sizes == "small" else len(tasks) == 1

    run()


def test_deleted_records_are_not_read(tmp_path: Path, catalog_url: str) -> None:
    @on_uvloop
    async def run() -> None:
        async with serving(tmp_path, catalog_url, 0) as (leader, served):
            given = options(tmp_path, catalog_url, partition=0)
            for start in (3, len(served) - 2):
                await delete_records(leader, start)
                rows = served
                async with asyncio.timeout(PATIENCE_S):
                    while len(rows) > len(served) - start:
                        rows = by_partition(await asyncio.to_thread(read_by, given), 0)
                assert rows == served[start:]

    run()


def test_nothing_below_a_log_start_in_the_wal_is_read(tmp_path: Path, catalog_url: str) -> None:
    @on_uvloop
    async def run() -> None:
        async with cluster(tmp_path, catalog_url, 2, SETTINGS) as brokers:
            await fill(brokers)

    run()
    place = Place(tmp_path / "bucket", open_engine(catalog_url))
    given = options(tmp_path, catalog_url, partition=0)
    end = STORED + len(SIZES[0])
    try:
        for start in (STORED - 3, STORED + 2, end - 1, end):
            place.run("UPDATE partition SET log_start_offset = ? WHERE number = 0", start)
            assert [at for at, *_ in by_partition(read_by(given), 0)] == list(range(start, end))
            parsed = parse_options(given)
            (log,) = find_shared_logs(parsed, parsed.selection)
            assert log.snapshot.high_watermark == end
    finally:
        place.engine.close()


def plan(given: dict[str, str]) -> list[Any]:
    parsed = parse_options(given)
    return tasks_of(find_segments(parsed, parsed.selection))


def test_a_reading_is_narrowed_by_partition_offset_and_time(
    tmp_path: Path, catalog_url: str
) -> None:
    @on_uvloop
    async def run() -> None:
        async with serving(tmp_path, catalog_url, 1) as (leader, served):
            end = (await bounds(leader, 1))[1]
            for start, stop in ((0, 5), (3, 9), (STORED - 1, STORED + 2), (end - 1, end + 9)):
                given = options(
                    tmp_path, catalog_url, partition=1, startingOffset=start, endingOffset=stop
                )
                rows = await asyncio.to_thread(read_by, given)
                assert by_partition(rows, 1) == served[start:stop]
                assert {one["partition"] for one in rows} == {1}
            given = options(tmp_path, catalog_url, partition=1, startingTimestamp=20)
            parsed = parse_options(given)
            segments = find_segments(parsed, parsed.selection)
            assert len(prune(segments, parsed.selection)) < len(segments) - 1
            rows = await asyncio.to_thread(read_by, given)
            assert by_partition(rows, 1) == served[19:]

    run()


def test_a_reading_begins_at_its_first_offset_and_not_at_the_segment_s(
    tmp_path: Path, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @on_uvloop
    async def run() -> None:
        async with cluster(tmp_path, catalog_url, 1, SETTINGS) as (one,):
            await create(one, "t", 1, {"retention.ms": "-1", "index.interval.bytes": "100"})
            await known_everywhere([one], "t")
            for at in range(40):
                await produce(one, sequenced(at, 100))
            log_of(one).roll(1, "the test")
            await stored(one)
            await free(one)

    run()
    given = options(tmp_path, catalog_url, topic="t")
    (segment,) = [one for task in plan(given) for one in task if one.base_offset == 0]
    (piece,) = segment.shared.part.pieces
    read: list[int] = []
    really = shared_bytes._Blocks.read

    def note(self: Any, key: str, position: int, size: int) -> memoryview:
        read.append(position - piece.position)
        return really(self, key, position, size)

    monkeypatch.setattr(shared_bytes._Blocks, "read", note)
    rows = by_partition(read_by({**given, "startingOffset": "30"}), 0)
    assert [at for at, *_ in rows] == list(range(30, 40))
    assert min(read) > piece.size_bytes // 2


def test_a_transaction_ends_by_a_marker_in_the_wal(tmp_path: Path, catalog_url: str) -> None:
    settings = {**SETTINGS, "transaction.state.log.num.partitions": "1"}

    @on_uvloop
    async def run() -> None:
        async with cluster(tmp_path, catalog_url, 1, settings) as (broker,):
            await create(broker, "t", 1, SMALL)
            await known_everywhere([broker], "t")
            given = options(tmp_path, catalog_url, topic="t", columns="offset,aborted")
            producer = await asyncio.to_thread(transactional, broker)
            begun = dict.fromkeys(range(20))
            for at in begun:
                await asyncio.to_thread(send, producer, at)
            await stored(broker)
            await free(broker)
            sharing(broker).uploads._limits = StoringLimits()
            assert fates(await asyncio.to_thread(read_by, given)) == begun
            planned = plan(given)
            assert len(planned) == 1
            await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
            await eventually(given, dict.fromkeys(begun, False))
            # The marker was not there when the reading was planned.
            schema = arrow_schema({"offset": True, "aborted": True})
            rows = [
                row
                for batch in read_segments(planned[0], Selection(), schema)
                for row in batch.to_pylist()
            ]
            assert fates(rows) == begun
            await asyncio.to_thread(producer.begin_transaction)
            await asyncio.to_thread(send, producer, 21)
            await asyncio.to_thread(producer.abort_transaction, PATIENCE_S)
            await eventually(given, dict.fromkeys(begun, False) | {21: True})
            committed = await asyncio.to_thread(read_by, given | {"isolation": "read_committed"})
            assert fates(committed) == dict.fromkeys(begun, False)

    run()


def transactional(broker: Broker) -> Producer:
    """Return a producer with an open transaction."""
    port = broker.server.listeners[0].port
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": "x"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    return producer


def send(producer: Producer, at: int) -> None:
    producer.produce("t", bytes(100), b"k%d" % at, partition=0)
    assert producer.flush(PATIENCE_S) == 0


async def eventually(given: dict[str, str], expected: Mapping[int, bool | None]) -> None:
    """Read until transactions have these ends: their markers are written after the answer."""
    async with asyncio.timeout(PATIENCE_S):
        while fates(await asyncio.to_thread(read_by, given)) != expected:
            pass


def fates(rows: list[Row]) -> dict[int, bool | None]:
    return {one["offset"]: one["aborted"] for one in rows}


def test_names_what_is_wrong(tmp_path: Path, catalog_url: str) -> None:
    @on_uvloop
    async def run() -> None:
        async with cluster(tmp_path, catalog_url, 1, SETTINGS) as (broker,):
            await create(broker, "t", 1, SMALL)
            await create(broker, "files", 1, {"odradek.storage": "local"})
            await known_everywhere([broker], "t")
            for others, text in (
                ({"topic": "gone"}, "topic gone is not in the catalog: there are t"),
                ({"topic": "files"}, "topic files is not shared: .* option path"),
                ({"partition": 4}, "no topic read from the catalog has a partition 4"),
                ({"path": "/tmp"}, "not both"),
                ({"odradek.wal.bytes.max": 1}, "option odradek.wal.bytes.max is unknown"),
                ({"catalog": "mysql://h"}, "odradek.catalog.url: write postgresql://.*option"),
                ({"catalog": "sqlite:///nowhere/x"}, "there is no catalog /nowhere/x"),
                ({"odradek.object.store.url": "ftp://x"}, "odradek.object.store.url"),
            ):
                with pytest.raises(PipelineError, match=text):
                    await asyncio.to_thread(
                        read_by, options(tmp_path, catalog_url, **others)
                    )

    run()
