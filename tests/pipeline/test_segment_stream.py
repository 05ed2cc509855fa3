"""Batches of a stream of shared topics have each record once, in the order of its offsets."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from odradek.broker.shared.tails import StoringLimits
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_selection import parse_options
from odradek.pipeline.segment_source import SegmentsDataSource
from odradek.pipeline.segment_stream import Offsets, SegmentsStreamReader
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.filled_bucket import SETTINGS, fill, sequenced, sharing
from tests.broker.live import PATIENCE_S, create, on_uvloop
from tests.broker.test_cluster import known_everywhere
from tests.broker.test_shared_segments import (
    SMALL,
    bounds,
    delete_records,
    free,
    keyed,
    records,
    stored,
)
from tests.broker.test_shared_topics import cluster, leader_of, produce
from tests.pipeline.test_shared_segments import options, send, transactional

KEPT = {**SMALL, "retention.ms": "-1"}
COLUMNS = {"partition": False, "offset": False}


def reader(place: Path, url: str, **others: object) -> SegmentsStreamReader:
    return SegmentsStreamReader(parse_options(options(place, url, topic="t", **others)), COLUMNS)


def read(stream: SegmentsStreamReader, start: Offsets, end: Offsets) -> list[tuple[int, int]]:
    """Return partition and offset of the records of a batch, as tasks elsewhere read them."""
    there = pickle.loads(pickle.dumps(stream))
    return sorted(
        (row["partition"], row["offset"])
        for task in stream.partitions(start, end)
        for batch in there.read(pickle.loads(pickle.dumps(task)))
        for row in batch.to_pylist()
    )


def test_batches_have_each_record_once(tmp_path: Path, catalog_url: str) -> None:
    @on_uvloop
    async def run() -> None:
        async with cluster(tmp_path, catalog_url, 2, SETTINGS) as brokers:
            await fill(brokers)
            stream = reader(tmp_path, catalog_url)
            ends = [await asyncio.to_thread(stream.initialOffset)]
            assert ends == [{"t": {"0": 0, "1": 0}}]
            # The first batch ends within segments, the second within entries of the WAL.
            ends += [{"t": {"0": 7, "1": 0}}, {"t": {"0": 35, "1": 34}}]
            ends.append(await asyncio.to_thread(stream.latestOffset))
            assert ends[-1] == await asyncio.to_thread(
                reader(tmp_path, catalog_url, startingOffsets="latest").initialOffset
            )
            leader = leader_of(brokers, 1)
            assert leader is not None
            for at in range(50, 53):
                await produce(leader, keyed(b"k%d" % at, bytes(400)), 1)
            ends += 2 * [await asyncio.to_thread(stream.latestOffset)]
            found = []
            for start, end in itertools.pairwise(ends):
                some = await asyncio.to_thread(read, stream, start, end)
                assert some == await asyncio.to_thread(read, stream, start, end)
                first, last = start["t"], end["t"]
                assert all(first[str(n)] <= at < last[str(n)] for n, at in some)
                found += some
            assert sorted(found) == [
                (number, offset)
                for number in (0, 1)
                for offset, *_ in await records(
                    leader_of(brokers, number), number  # type: ignore[arg-type]
                )
            ]
            # What is stored as segments in the meantime changes nothing.
            sharing(leader).uploads._limits = StoringLimits(wal_age_s=0)
            await stored(leader, 1)
            start, end = ends[2], ends[-1]
            again = await asyncio.to_thread(read, stream, start, end)
            assert again == [
                (number, at)
                for number in (0, 1)
                for at in range(start["t"][str(number)], end["t"][str(number)])
            ]

    run()


def test_a_committed_stream_waits_for_the_ends_of_transactions(
    tmp_path: Path, catalog_url: str
) -> None:
    settings = {**SETTINGS, "transaction.state.log.num.partitions": "1"}

    @on_uvloop
    async def run() -> None:
        async with cluster(tmp_path, catalog_url, 1, settings) as (broker,):
            await create(broker, "t", 1, KEPT)
            await known_everywhere([broker], "t")
            await produce(broker, keyed(b"before", b""))
            early = reader(tmp_path, catalog_url, isolation="read_committed")
            assert await asyncio.to_thread(early.latestOffset) == {"t": {"0": 1}}
            producer = await asyncio.to_thread(transactional, broker)
            for at in range(20):
                await asyncio.to_thread(send, producer, at)
            assert await asyncio.to_thread(early.latestOffset) == {"t": {"0": 1}}
            await stored(broker)
            await free(broker)
            sharing(broker).uploads._limits = StoringLimits()
            await produce(broker, keyed(b"between", b""))
            # One reader saw the transaction begin, the other finds it in the bucket.
            late = reader(tmp_path, catalog_url, isolation="read_committed")
            for stream in (early, late):
                assert await asyncio.to_thread(stream.latestOffset) == {"t": {"0": 1}}
                start = await asyncio.to_thread(stream.initialOffset)
                assert await asyncio.to_thread(read, stream, start, {"t": {"0": 1}}) == [(0, 0)]
            await asyncio.to_thread(producer.abort_transaction, PATIENCE_S)
            async with asyncio.timeout(PATIENCE_S):
                while await asyncio.to_thread(late.latestOffset) == {"t": {"0": 1}}:
                    pass
            end = await asyncio.to_thread(early.latestOffset)
            assert end == {"t": {"0": (await bounds(broker))[1]}}
            for stream in (early, late):
                found = await asyncio.to_thread(read, stream, {"t": {"0": 1}}, end)
                assert found == [(0, 21)]

    run()


def test_a_stream_reports_records_that_are_gone(tmp_path: Path, catalog_url: str) -> None:
    @on_uvloop
    async def run() -> None:
        async with cluster(tmp_path, catalog_url, 1, SETTINGS) as (broker,):
            await create(broker, "t", 1, KEPT)
            await known_everywhere([broker], "t")
            for at in range(20):
                await produce(broker, sequenced(at, 100))
            await stored(broker)
            strict = reader(tmp_path, catalog_url)
            loose = reader(tmp_path, catalog_url, failOnDataLoss="false")
            await delete_records(broker, 9)
            async with asyncio.timeout(PATIENCE_S):
                while (await asyncio.to_thread(strict.initialOffset)) == {"t": {"0": 0}}:
                    pass
            for topic, first, last, text in (
                ("t", 4, 12, r"offsets 4 to 11 of t-0 were deleted up to 9 .*failOnDataLoss"),
                ("t", 12, 25, r"offsets 12 to 24 of t-0 are gone: .*failOnDataLoss"),
                ("gone", 0, 3, r"offsets 0 to 2 of gone-0 are gone"),
            ):
                start, end = {topic: {"0": first}}, {topic: {"0": last}}
                with pytest.raises(PipelineError, match=text):
                    await asyncio.to_thread(read, strict, start, end)
                rest = [(0, at) for at in range(max(first, 9), min(last, 20))]
                expected = rest if topic == "t" else []
                assert await asyncio.to_thread(read, loose, start, end) == expected

    run()


def test_files_are_no_stream() -> None:
    with pytest.raises(PipelineError, match="a stream reads shared topics: give option catalog"):
        SegmentsStreamReader(parse_options({"path": "/data"}), COLUMNS)


def test_a_batch_does_not_begin_at_the_end() -> None:
    from pyspark.sql.types import StructType

    source = SegmentsDataSource({"path": "/data", "startingOffsets": "latest"})
    with pytest.raises(PipelineError, match="is for streams; a batch has startingOffset"):
        source.reader(StructType())
