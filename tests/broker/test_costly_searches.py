"""Searches by time in batches that are small on the disk and large once they are unpacked."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from odradek.broker.composition import Broker
from odradek.protocol.compression import Codec
from odradek.protocol.messages.list_offsets import (
    ListOffsetsRequest,
)
from odradek.protocol.records_plain import first_at_or_after_plain
from odradek.storage import reading
from odradek.storage.log import Log
from tests.broker.live import Client, client, create, live, on_uvloop, until
from tests.broker.raw_batches import RawBatch, RawRecord
from tests.support.requests import listing_offsets

NOW_MS = 1_000
HEADER_COUNT = 2_000_000
PARTITIONS = 20
# Of the loop's thread: a search of one of these batches alone takes more.
LOOP_S_MAX = 1.0


def asking(*partitions: int) -> ListOffsetsRequest:
    return listing_offsets({"t": partitions}, NOW_MS + 1)


def headers_bomb() -> bytes:
    """Return a batch whose last record is the one searched for, and whose first has headers."""
    first = RawRecord(header_count=HEADER_COUNT, headers=bytes(2 * HEADER_COUNT))
    batch = RawBatch(
        records=[first, RawRecord(timestamp_delta=1)],
        codec=Codec.ZSTD, base_timestamp=NOW_MS, max_timestamp=NOW_MS + 1,
    ).encode()  # fmt: skip
    assert len(batch) < 10_000
    return batch


def store(directory: Path, batch: bytes) -> None:
    """Have partitions hold a batch as another broker could have written it."""
    for number in range(PARTITIONS):
        path = directory / "data" / f"t-{number}" / f"{0:020}.log"
        path.write_bytes(batch)
    (directory / "data" / ".kafka_cleanshutdown").unlink()


async def found(one: Client, *partitions: int) -> list[int]:
    response = await one.ask(asking(*partitions), version=11)
    (topic,) = response.topics
    return [partition.offset for partition in topic.partitions]


@pytest.mark.slow
@on_uvloop
async def test_batches_of_millions_of_headers_are_searched_beside_others(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "t", PARTITIONS)
    store(tmp_path, headers_bomb())
    with mock.patch.object(reading, "_find", first_at_or_after_plain):
        async with live(tmp_path) as broker, client(broker) as one:
            # Of the kernels that a broker loads only this one, which no other test gets to see.
            reading.load_kernels_by(reading.use_kernels)
            begun = time.thread_time()
            assert await found(one, *range(PARTITIONS)) == PARTITIONS * [1]
            assert time.thread_time() - begun < LOOP_S_MAX
            # It took the plain twin seconds for each.
            assert reading._find is not first_at_or_after_plain


@on_uvloop
async def test_searches_leave_threads_to_fetches_and_take_turns(tmp_path: Path) -> None:
    may_go_on = threading.Event()
    begun: list[int] = []

    def search(log: Log, timestamp: int) -> Any:
        begun.append(log.partition)
        may_go_on.wait()

    async with live(tmp_path) as broker:
        await create(broker, "t", PARTITIONS)
        readers = broker.config.num_io_threads
        with mock.patch.object(Log, "offset_for_timestamp", search):
            asked = [asyncio.create_task(_ask(broker, number)) for number in range(2 * readers)]
            await until(lambda: begun)
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(60):
                await loop.run_in_executor(broker.readers, int)
            assert len(begun) < readers
            may_go_on.set()
            for one in await asyncio.gather(*asked):
                assert one == [-1]
        assert sorted(begun) == sorted(range(2 * readers))


async def _ask(broker: Broker, partition: int) -> list[int]:
    async with client(broker) as one:
        return await found(one, partition % PARTITIONS)
