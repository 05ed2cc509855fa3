"""What read_committed clients are told: stable records, aborted transactions, stable ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from odradek.broker.apis.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.messages.fetch import PartitionData
from odradek.storage.log import Log
from odradek.storage.transactions import Marker
from tests.broker.live import append, batch, client, create, live, on_uvloop, until
from tests.broker.test_fetch import LONG_MS, part, parts_of, request, send, values
from tests.broker.test_list_offsets import look

COMMITTED = 1
TOPIC = ("orders", bytes(16))


def write(log: Log, producer_id: int, *texts: bytes, timestamp: int = 1_000) -> int:
    """Append a batch of a transaction; return its size."""
    state = log.producers.get(producer_id)
    data = batch(
        *texts,
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=state.last_sequence + 1 if state else 0,
        transactional=True,
    )
    append(log, data)
    return len(data)


def end(log: Log, producer_id: int, *, commit: bool) -> int:
    """End a transaction; return the size of its marker."""
    marker = Marker(producer_id, 0, 0, commit, 1_000)
    log.append_marker(marker)
    return len(marker.encode())


def aborted(data: PartitionData) -> list[tuple[int, int]] | None:
    if data.aborted_transactions is None:
        return None
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions]


def end_offsets(data: PartitionData) -> tuple[int, int]:
    return data.last_stable_offset, data.high_watermark


@on_uvloop
async def test_a_fetch_ends_at_the_last_stable_offset(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        (log,) = (await create(broker, "orders")).partitions
        append(log, batch(b"plain"))
        write(log, 1, b"a", b"b")
        write(log, 2, b"c")
        end(log, 2, commit=False)
        for isolation, offset, wanted, gone in (
            (0, 0, [b"plain", b"a", b"b", b"c"], None),
            (COMMITTED, 0, [b"plain"], [(2, 3)]),  # one too many, see aborted_within()
            (COMMITTED, 1, [], []),
            (COMMITTED, 4, [], []),
        ):
            asked = request({TOPIC: [part(offset=offset)]}, isolation=isolation)
            (data,) = parts_of(await send(broker, asked))
            assert data.error_code == 0
            assert end_offsets(data) == (1, 5)
            assert [v for v in values(data) if len(v) < 6] == wanted
            assert aborted(data) == gone
        end(log, 1, commit=False)
        (data,) = parts_of(await send(broker, request({TOPIC: [part()]}, isolation=COMMITTED)))
        assert end_offsets(data) == (6, 6)
        assert sorted(aborted(data) or []) == [(1, 1), (2, 3)]
        assert values(data)[:4] == [b"plain", b"a", b"b", b"c"]


@on_uvloop
async def test_only_aborted_transactions_of_what_is_fetched_are_named(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        (log,) = (await create(broker, "orders")).partitions
        for producer_id in range(5):
            write(log, producer_id, b"v")
            end(log, producer_id, commit=producer_id == 2)
            log.roll(0)
        for offset, gone in ((0, [(0, 0)]), (3, [(1, 2)]), (4, []), (8, [(4, 8)]), (10, [])):
            asked = request({TOPIC: [part(offset=offset)]}, isolation=COMMITTED)
            (data,) = parts_of(await send(broker, asked))
            assert aborted(data) == gone


@on_uvloop
async def test_a_waiting_fetch_is_woken_when_a_transaction_ends(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        (log,) = (await create(broker, "orders")).partitions
        asked = request({TOPIC: [part()]}, isolation=COMMITTED, wait_ms=LONG_MS)
        one.send(asked, version=12)
        await until(lambda: len(broker.purgatory))
        write(log, 1, b"a")
        write(log, 2, b"b")
        end(log, 2, commit=True)  # the older one is open
        await until(lambda: not broker.purgatory._ready)
        assert len(broker.purgatory) == 1
        end(log, 1, commit=True)
        (data,) = parts_of((await one.receive())[1])
        assert values(data)[:2] == [b"a", b"b"]
        assert end_offsets(data) == (4, 4)


@on_uvloop
async def test_a_waiting_fetch_counts_only_what_is_stable(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        (log,) = (await create(broker, "orders")).partitions
        size = write(log, 1, b"a") + end(log, 1, commit=True)
        asked = request(
            {TOPIC: [part()]}, isolation=COMMITTED, wait_ms=LONG_MS, min_bytes=3 * size
        )
        one.send(asked, version=12)
        await until(lambda: len(broker.purgatory))
        write(log, 1, b"b")
        append(log, batch(bytes(4 * size)))
        await until(lambda: not broker.purgatory._ready)
        assert len(broker.purgatory) == 1
        end(log, 1, commit=False)
        (data,) = parts_of((await one.receive())[1])
        assert aborted(data) == [(1, 2)]
        assert len(data.records or b"") > 3 * size


@on_uvloop
async def test_a_little_that_became_stable_is_not_enough(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        (log,) = (await create(broker, "orders")).partitions
        size = write(log, 1, b"a")
        marker_size = end(log, 1, commit=True)
        min_bytes = 2 * (size + marker_size) + 1
        asked = request(
            {TOPIC: [part()]}, isolation=COMMITTED, wait_ms=LONG_MS, min_bytes=min_bytes
        )
        one.send(asked, version=12)
        await until(lambda: len(broker.purgatory))
        write(log, 1, b"b")
        end(log, 1, commit=True)
        await until(lambda: not broker.purgatory._ready)
        assert len(broker.purgatory) == 1, "a byte is missing"
        append(log, batch(b"c"))
        (data,) = parts_of((await one.receive())[1])
        assert values(data)[-1] == b"c"


@on_uvloop
async def test_a_fetch_waits_where_stability_ends_in_a_sealed_segment(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        (log,) = (await create(broker, "orders")).partitions
        append(log, batch(b"a"))
        log.roll(0)
        append(log, batch(b"b"))
        write(log, 1, b"c")
        log.roll(0)
        append(log, batch(b"d"))
        began = time.monotonic()
        for offset, wait_ms, wanted in ((0, LONG_MS, [b"a"]), (1, 30, [b"b"])):
            asked = request(
                {TOPIC: [part(offset=offset)]},
                isolation=COMMITTED,
                wait_ms=wait_ms,
                min_bytes=1 << 20,
            )
            assert values(parts_of(await send(broker, asked))[0]) == wanted
        assert time.monotonic() - began >= 0.029


@on_uvloop
async def test_offsets_by_time_end_where_stability_does(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        (log,) = (await create(broker, "orders")).partitions
        append(log, encode_batch([Record(0, 1_000, b"k", b"v")]))
        write(log, 1, b"a", timestamp=2_000)
        append(log, encode_batch([Record(0, 3_000, b"k", b"v")]))
        for isolation, ends in ((0, (3, (2_000, 1), (3_000, 2))), (1, (1, (-1, -1), (-1, -1)))):
            latest, later, largest = ends
            assert await look(broker, LATEST, isolation=isolation) == (-1, latest)
            assert await look(broker, EARLIEST, isolation=isolation) == (-1, 0)
            assert await look(broker, 500, isolation=isolation) == (1_000, 0)
            assert await look(broker, 1_500, isolation=isolation) == later
            assert await look(broker, MAX_TIMESTAMP, isolation=isolation) == largest
        end(log, 1, commit=False)
        assert await look(broker, MAX_TIMESTAMP, isolation=1) == (3_000, 2)


def offsets_seen(bootstrap: str, isolation: str) -> list[int]:
    """Read a topic to its end by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    offsets = []
    while True:
        message = consumer.poll(20)
        assert message is not None, "no more messages, and no end"
        if message.error():
            break
        offsets.append(message.offset())
    consumer.close()
    return offsets


@pytest.mark.slow
@on_uvloop
async def test_a_consumer_sees_what_is_committed(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        (log,) = (await create(broker, "orders")).partitions
        append(log, batch(b"plain"))
        write(log, 1, b"committed", b"with another")
        end(log, 1, commit=True)
        write(log, 1, b"aborted")
        write(log, 2, b"committed later")
        end(log, 1, commit=False)
        log.roll(0)
        write(log, 1, b"aborted, too")
        end(log, 2, commit=True)
        end(log, 1, commit=False)
        append(log, batch(b"plain"))
        write(log, 3, b"open")
        append(log, batch(b"not stable"))
    # As a directory is that another process has left.
    async with live(tmp_path) as broker:
        bootstrap = f"127.0.0.1:{broker.server.listeners[0].port}"
        loop = asyncio.get_running_loop()
        for isolation, wanted in (
            ("read_committed", [0, 1, 2, 5, 10]),
            ("read_uncommitted", [0, 1, 2, 4, 5, 7, 10, 11, 12]),
        ):
            found = await loop.run_in_executor(None, offsets_seen, bootstrap, isolation)
            assert found == wanted
