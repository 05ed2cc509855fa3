"""The broker's own topics: made on first need, with nothing lost or out of order meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.broker.coordination.effects import Producer
from odradek.broker.coordination.internal_log import InternalLog
from odradek.broker.coordination.seams import KeyValue, StoredBatch
from odradek.broker.durability.group_commit import GroupCommit
from odradek.broker.durability.own_appends import Durability
from odradek.broker.errors import Refusal
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.registry import Topics
from odradek.broker.topics.topic import Topic
from odradek.protocol.batches import Record
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from odradek.protocol.legacy import read_entry
from odradek.storage.errors import BatchTooLarge, InvalidProducerEpoch
from odradek.storage.transactions import Marker
from tests.broker.admin import NOW_MS, Admin, admin
from tests.protocol.legacy_messages import encode_entry, encode_wrapper

SETTINGS = {"offsets.topic.num.partitions": "3"}


@asynccontextmanager
async def opened(
    path: Path, settings: dict[str, str] | None = None
) -> AsyncIterator[tuple[Admin, InternalLog]]:
    async with admin(path, SETTINGS | (settings or {})) as broker:
        commit = GroupCommit(asyncio.get_running_loop())
        yield broker, make(broker, commit)
        await commit.close()


def has_transaction(broker: Admin, partition: int, producer: Producer) -> bool:
    """Return whether a producer has an open transaction in its epoch."""
    topic = broker.topics.get(topic_names.CONSUMER_OFFSETS)
    log = topic.log(partition) if topic else None
    known = log.producers.get(producer.producer_id) if log else None
    return (
        known is not None
        and known.epoch == producer.epoch
        and known.transaction_first_offset >= 0
    )


def make(broker: Admin, commit: GroupCommit) -> InternalLog:
    return InternalLog(
        broker.topics,
        topic_names.CONSUMER_OFFSETS,
        Durability(commit, lambda: broker.config.log_flush_acks_all),
        partition_count=lambda: broker.config.offsets_topic_num_partitions,
        codec=lambda: Codec(broker.config.offsets_topic_compression_codec),
        now_ms=lambda: NOW_MS,
    )


def numbered(numbers: Sequence[int]) -> list[KeyValue]:
    return [(b"%d" % number, b"value") for number in numbers]


def keys(log: InternalLog, partition: int) -> list[int]:
    return [int(key) for key, _ in records(log, partition)]


def records(log: InternalLog, partition: int) -> list[KeyValue]:
    return [one for batch in log.replay(partition) for one in cast(StoredBatch, batch).records]


async def test_there_is_nothing_to_replay_before_the_topic_is_there(tmp_path: Path) -> None:
    async with opened(tmp_path) as (broker, log):
        assert log.partition_count == 3
        assert list(log.replay(0)) == []
        assert broker.topics.get(topic_names.CONSUMER_OFFSETS) is None


async def test_appends_keep_their_order_while_the_topic_is_made(tmp_path: Path) -> None:
    async with opened(tmp_path) as (broker, log):
        futures = [log.append(number % 2, numbered([number])) for number in range(6)]
        for number in range(6, 12):
            await asyncio.sleep(0)
            futures.append(log.append(number % 2, numbered([number])))
        await asyncio.gather(*futures)
        futures = [log.append(number % 2, numbered([number])) for number in range(12, 14)]
        await asyncio.gather(*futures)
        assert keys(log, 0) == [0, 2, 4, 6, 8, 10, 12]
        assert keys(log, 1) == [1, 3, 5, 7, 9, 11, 13]
        topic = broker.topics.get(topic_names.CONSUMER_OFFSETS)
        assert topic is not None
        assert len(topic.partitions) == 3
        # What is done is on the disk.
        assert [one.recovery_point for one in topic.partitions] == [7, 7, 0]


async def test_a_tombstone_and_a_restart_are_replayed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, log):
        await log.append(0, [(b"1", b"value"), (b"1", None)])
    async with opened(tmp_path) as (_, log):
        assert records(log, 0) == [(b"1", b"value"), (b"1", None)]


async def test_a_transaction_is_replayed_as_one_and_fences_older_epochs(tmp_path: Path) -> None:
    marker = Marker(7, 3, 1, is_commit=True, timestamp=NOW_MS)
    async with opened(tmp_path) as (topics, log):
        await log.append(0, numbered([1]), Producer(7, 3))
        assert has_transaction(topics, 0, Producer(7, 3))
        assert not has_transaction(topics, 0, Producer(7, 4))
        assert not has_transaction(topics, 1, Producer(7, 3))
        with pytest.raises(InvalidProducerEpoch):
            await log.append(0, numbered([2]), Producer(7, 2))
        await log.append_marker(0, marker)
        assert not has_transaction(topics, 0, Producer(7, 3))
    async with opened(tmp_path) as (_, log):
        assert list(log.replay(0)) == [StoredBatch(numbered([1]), 7), marker]


async def test_records_of_older_message_formats_are_replayed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (broker, log):
        await log.append(0, numbered([0]))
        topic = broker.topics.get(topic_names.CONSUMER_OFFSETS)
        assert topic is not None
        active = topic.partitions[0].active
        for entry in (
            encode_entry(0, Record(1, -1, b"1", b"value")),
            encode_wrapper(1, Codec.GZIP, [Record(at, 5, b"%d" % at, b"value") for at in (2, 3)]),
        ):
            active.append((entry,), len(entry), read_entry(entry).last_offset, 5, 4096)
        assert records(log, 0) == numbered(range(4))


async def test_a_topic_keeps_its_partitions_when_the_setting_changes(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, log):
        await log.append(0, numbered([1]))
    async with opened(tmp_path, {"offsets.topic.num.partitions": "7"}) as (_, log):
        assert log.partition_count == 3


async def test_a_batch_that_the_log_refuses_fails_by_itself(tmp_path: Path) -> None:
    async with opened(tmp_path, {"message.max.bytes": "500"}) as (_, log):
        held = log.append(0, [(b"1", bytes(1000))])
        good = log.append(0, numbered([2]))
        with pytest.raises(BatchTooLarge):
            await held
        await good
        with pytest.raises(BatchTooLarge):
            await log.append(0, [(b"3", bytes(1000))])
        assert keys(log, 0) == [2]


async def test_a_topic_that_cannot_be_made_fails_what_waits_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original: Callable[[Topics, str], object] = Topics.internal
    fails = True

    async def internal(self: Topics, name: str) -> Topic:
        if fails:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")
        return await original(self, name)  # type: ignore[misc,no-any-return]

    monkeypatch.setattr(Topics, "internal", internal)
    async with opened(tmp_path) as (_, log):
        first, second = log.append(0, numbered([1])), log.append(1, numbered([2]))
        for failing in (first, second):
            with pytest.raises(Refusal, match="no space left"):
                await failing
        fails = False
        await log.append(0, numbered([3]))
        assert keys(log, 0) == [3]


async def test_an_append_cancelled_while_the_topic_is_made_holds_up_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, log):
        gone, here = log.append(0, numbered([1])), log.append(0, numbered([2]))
        gone.cancel()
        await here
        assert keys(log, 0) == [1, 2]


async def test_batches_are_compressed_as_the_setting_says(tmp_path: Path) -> None:
    async with opened(tmp_path, {"offsets.topic.compression.codec": "1"}) as (broker, log):
        await log.append(0, [(b"1", bytes(500))] * 3)
        assert keys(log, 0) == [1, 1, 1]
        topic = broker.topics.get(topic_names.CONSUMER_OFFSETS)
        assert topic is not None
        ((header, data),) = topic.partitions[0].batches(0)
        assert header.codec is Codec.GZIP
        assert len(data) < 500


async def test_records_that_nobody_waits_for_are_flushed_with_others_or_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as (broker, log):
        await log.append(0, numbered([0]))
        topic = broker.topics.get(topic_names.CONSUMER_OFFSETS)
        assert topic is not None
        (partition, *_), commit = topic.partitions, log._durability.group_commit
        before = commit.flushes
        for number in range(1, 6):
            assert log.append(0, numbered([number]), is_awaited=False).done()
        assert partition.recovery_point == 1
        flushed, finish = asyncio.Event(), commit._finish

        def finished(*arguments: Any) -> None:
            finish(*arguments)
            flushed.set()

        monkeypatch.setattr(commit, "_finish", finished)
        await flushed.wait()
        assert partition.recovery_point == 6 and commit.flushes == before + 1
        log.append(0, numbered([6]), is_awaited=False)
        await log.append(0, numbered([7]))
        assert partition.recovery_point == 8
        assert keys(log, 0) == list(range(8))
