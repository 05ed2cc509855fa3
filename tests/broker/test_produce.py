"""Produce: what is appended, what is refused and why, and what `acks` makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

import pytest

from odradek.broker.composition import Broker
from odradek.protocol.batch_records import decode_records
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.wire import ZERO_UUID
from odradek.storage.allowance import Allowance
from odradek.storage.errors import DiskFailure
from odradek.storage.log import Log
from tests.broker.live import batch, client, create, live, on_uvloop, until

VERSIONS = range(3, 14)
LAST = VERSIONS[-1]
IDS_SINCE = 13
ACKS = (-1, 0, 1)

Parts = Mapping[int, bytes | None]


def request(
    topics: Mapping[tuple[str, bytes], Parts], *, acks: int = 1, transactional: str | None = None
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional,
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=topic_id,
                partition_data=[
                    PartitionProduceData(index=index, records=records)
                    for index, records in parts.items()
                ],
            )
            for (name, topic_id), parts in topics.items()
        ],
    )


async def send(
    broker: Broker, asked: ProduceRequest, version: int = 12, client_id: str = "a-client"
) -> list[PartitionProduceResponse]:
    """Return what became of each partition."""
    async with client(broker) as one:
        one.client_id = client_id
        response: ProduceResponse = await one.ask(asked, version=version)
        return [part for topic in response.responses for part in topic.partition_responses]


def stored(log: Log) -> list[bytes]:
    return [one.value or b"" for _, data in log.batches(0) for one in decode_records(data)]


# --- what is appended -------------------------------------------------------------------------


@on_uvloop
async def test_batches_are_appended_at_every_version_and_acks(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", 2)
        offset = 0
        for version in VERSIONS:
            for acks in (1, -1):
                parts = {1: batch(b"a", b"b"), 0: batch(b"c")}
                asked = request({("orders", topic.topic_id): parts}, acks=acks)
                first, second = await send(broker, asked, version)
                assert (first.index, first.error_code, first.base_offset) == (1, 0, 2 * offset)
                assert (second.index, second.error_code, second.base_offset) == (0, 0, offset)
                for one in (first, second):
                    assert one.log_append_time_ms == -1
                    assert one.log_start_offset == (0 if version >= 5 else -1)
                    assert (one.record_errors, one.error_message) == ([], None)
                offset += 1
        assert stored(topic.partitions[0]) == [b"c"] * offset
        assert stored(topic.partitions[1]) == [b"a", b"b"] * offset


@on_uvloop
async def test_nothing_is_answered_to_acks_0(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        unanswered = request({("orders", bytes(16)): {0: batch(b"a")}}, acks=0)
        answered = request({("orders", bytes(16)): {0: batch(b"b")}})
        one.send(unanswered, unanswered, answered, version=12)
        number, response = await one.receive()
        assert number == 2
        assert response.responses[0].partition_responses[0].base_offset == 2
        assert stored(topic.partitions[0]) == [b"a", b"a", b"b"]


@on_uvloop
async def test_acks_all_is_answered_once_the_disk_has_it(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        (log,) = topic.partitions
        for acks, is_durable in ((1, False), (-1, True)):
            await send(broker, request({("orders", bytes(16)): {0: batch(b"a")}}, acks=acks))
            assert (log.recovery_point == log.log_end_offset) == is_durable


@on_uvloop
async def test_acks_all_may_be_had_without_the_disk(tmp_path: Path) -> None:
    async with live(tmp_path, {"log.flush.acks.all": "false"}) as broker:
        topic = await create(broker, "orders")
        await send(broker, request({("orders", bytes(16)): {0: batch(b"a")}}, acks=-1))
        assert topic.partitions[0].recovery_point == 0


@on_uvloop
async def test_the_answer_has_the_brokers_time_if_the_topic_stamps_records_with_it(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker:
        configs = {"message.timestamp.type": "LogAppendTime"}
        await create(broker, "orders", configs=configs)
        before_ms = broker.clock.now_ms()
        (one,) = await send(broker, request({("orders", bytes(16)): {0: batch(b"a")}}))
        assert before_ms <= one.log_append_time_ms <= broker.clock.now_ms()


@on_uvloop
async def test_a_batch_sent_again_is_answered_as_the_first_time(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        sent = [
            batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=2 * number)
            for number in range(6)
        ]
        for number, records in enumerate(sent):
            for acks in (1, -1):
                asked = request({("orders", bytes(16)): {0: records}}, acks=acks)
                (one,) = await send(broker, asked)
                assert (one.error_code, one.base_offset) == (0, 2 * number)
        assert len(stored(topic.partitions[0])) == 12
        (one,) = await send(broker, request({("orders", bytes(16)): {0: sent[0]}}))
        # Of more than Kafka remembers nothing is known but that it is not the next.
        assert one.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        gap = batch(b"c", producer_id=7, producer_epoch=0, base_sequence=13)
        (one,) = await send(broker, request({("orders", bytes(16)): {0: gap}}))
        assert one.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        fenced = batch(b"c", producer_id=7, producer_epoch=1, base_sequence=0)
        (one,) = await send(broker, request({("orders", bytes(16)): {0: fenced}}))
        assert (one.error_code, one.base_offset) == (0, 12)
        old = batch(b"c", producer_id=7, producer_epoch=0, base_sequence=12)
        (one,) = await send(broker, request({("orders", bytes(16)): {0: old}}))
        assert one.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


# --- what is refused --------------------------------------------------------------------------


def damaged(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


ONE = batch(b"a")
REFUSED: Mapping[str, tuple[bytes | None, ErrorCode, str]] = {
    "null": (None, ErrorCode.INVALID_RECORD, "at least one record batch"),
    "empty": (b"", ErrorCode.INVALID_RECORD, "at least one record batch"),
    "cut": (ONE[:40], ErrorCode.INVALID_RECORD, "orders-0"),
    "damaged": (damaged(ONE), ErrorCode.CORRUPT_MESSAGE, "CRC"),
    "two batches": (ONE + ONE, ErrorCode.INVALID_RECORD, "exactly one batch"),
    "old format": (ONE[:16] + b"\1" + ONE[17:], ErrorCode.INVALID_RECORD, "magic"),
    "too large": (batch(bytes(2000)), ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes=1000"),
    "control": (batch(b"a", control=True), ErrorCode.INVALID_RECORD, "control"),
}


@on_uvloop
async def test_a_batch_that_is_refused_spoils_no_other(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        for records, code, message in REFUSED.values():
            topic = await create(broker, "orders", 2, {"max.message.bytes": "1000"})
            asked = request({("orders", topic.topic_id): {0: records, 1: ONE}}, acks=-1)
            refused, fine = await send(broker, asked, LAST)
            assert (refused.index, refused.error_code) == (0, code)
            assert (refused.base_offset, refused.log_append_time_ms) == (-1, -1)
            assert message in (refused.error_message or "")
            assert (fine.index, fine.error_code, fine.base_offset) == (1, 0, 0)
            assert topic.partitions[0].log_end_offset == 0
            await broker.topics.delete([topic.topic_id])


@on_uvloop
async def test_records_without_keys_are_named_one_by_one(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "orders", configs={"cleanup.policy": "compact"})
        records = batch(b"a", b"b", key=None)
        for version in VERSIONS:
            asked = request({("orders", bytes(16)): {0: records}})
            if version >= IDS_SINCE:
                topic = broker.topics.get("orders")
                assert topic is not None
                asked = request({("", topic.topic_id): {0: records}})
            (one,) = await send(broker, asked, version)
            assert one.error_code == ErrorCode.INVALID_RECORD
            if version >= 8:  # KIP-467
                assert [error.batch_index for error in one.record_errors] == [0, 1]
                message = one.record_errors[0].batch_index_error_message
                assert message is not None
                assert message.startswith("Compacted topic cannot accept message without key")
                assert one.error_message == "One or more records have been rejected"
                assert one.log_start_offset == 0


def named_again(sent: ProduceRequest, index: int, records: bytes | None) -> ProduceRequest:
    """Name a partition of the first topic once more."""
    again = PartitionProduceData(index=index, records=records)
    sent.topic_data[0].partition_data.append(again)
    return sent


@on_uvloop
async def test_of_a_partition_that_is_named_again_only_the_last_batch_counts(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", 2)
        for version in VERSIONS:
            name = ("orders", topic.topic_id)
            asked = request({name: {0: b"no batch", 1: batch(b"x")}})
            named_again(asked, 0, batch(b"last"))
            # The topic, too, may come again.
            asked.topic_data += request({name: {1: batch(b"y")}}).topic_data
            first, second = await send(broker, asked, version)
            assert (first.index, first.error_code) == (0, 0)
            assert (second.index, second.error_code) == (1, 0)
        assert stored(topic.partitions[0]) == [b"last"] * len(VERSIONS)
        assert stored(topic.partitions[1]) == [b"y"] * len(VERSIONS)
        (refused,) = await send(broker, named_again(request({name: {0: ONE}}), 0, b"no batch"))
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert topic.partitions[0].log_end_offset == len(VERSIONS)


@on_uvloop
async def test_records_at_fault_are_named_up_to_a_bound_of_the_request(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "orders", 3, {"cleanup.policy": "compact"})
        keyless = batch(*[b""] * 6000, key=None)
        asked = request({("orders", bytes(16)): {0: keyless, 1: keyless, 2: keyless}})
        answers = await send(broker, asked)
        assert [len(one.record_errors) for one in answers] == [6000, 4000, 0]
        assert {one.error_code for one in answers} == {ErrorCode.INVALID_RECORD}
        assert {one.log_start_offset for one in answers} == {0}


@on_uvloop
async def test_batches_that_unpack_to_too_much_together_are_to_be_sent_again(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", 2)
        packed = batch(bytes(1000), codec=Codec.GZIP)
        asked = request({("orders", bytes(16)): {0: packed, 1: packed}})
        with mock.patch.object(Allowance, "unpacked_bytes", 1000):
            fine, refused = await send(broker, asked)
        assert (fine.error_code, refused.error_code) == (0, ErrorCode.NOT_ENOUGH_REPLICAS)
        assert [log.log_end_offset for log in topic.logs] == [1, 0]


@on_uvloop
async def test_a_missing_topic_or_partition_is_answered_with_an_error(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        strange = bytes(15) + b"\7"
        for version in VERSIONS:
            by_id = version >= IDS_SINCE
            asked = request(
                {
                    ("nowhere", strange): {0: ONE},
                    ("orders", topic.topic_id): {1: ONE, -1: ONE, 0: ONE},
                }
            )
            *missing, fine = await send(broker, asked, version)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            expected = [ErrorCode.UNKNOWN_TOPIC_ID if by_id else unknown, unknown, unknown]
            assert [one.error_code for one in missing] == expected
            assert fine.error_code == 0
        (one,) = await send(broker, request({("orders", ZERO_UUID): {0: ONE}}), LAST)
        assert one.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@on_uvloop
async def test_an_acks_that_kafka_does_not_know_is_refused(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        for acks in (2, -2, 32767):
            asked = request({("orders", bytes(16)): {0: ONE, 1: ONE}}, acks=acks)
            refused, unknown = await send(broker, asked)
            assert refused.error_code == ErrorCode.INVALID_REQUIRED_ACKS
            assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert topic.partitions[0].log_end_offset == 0


@on_uvloop
@pytest.mark.parametrize(
    ("records", "code"),
    [
        (ONE + ONE, ErrorCode.INVALID_RECORD),
        (damaged(ONE), ErrorCode.INVALID_REQUIRED_ACKS),
    ],
)
async def test_records_other_than_one_batch_are_refused_before_an_unknown_acks(
    tmp_path: Path, records: bytes, code: ErrorCode
) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "orders")
        (refused,) = await send(broker, request({("orders", bytes(16)): {0: records}}, acks=2))
        assert refused.error_code == code


@on_uvloop
async def test_clients_that_cannot_know_zstd_must_not_write_it(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "orders")
        records = batch(b"a", codec=Codec.ZSTD)
        for version, code in ((6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, 0)):
            (one,) = await send(broker, request({("orders", bytes(16)): {0: records}}), version)
            assert one.error_code == code


@on_uvloop
async def test_internal_topics_are_written_by_the_admin_client_only(tmp_path: Path) -> None:
    async with live(tmp_path, {"offsets.topic.num.partitions": "1"}) as broker:
        await broker.topics.internal("__consumer_offsets")
        for client_id, code in (("x", ErrorCode.INVALID_TOPIC_EXCEPTION), ("__admin_client", 0)):
            asked = request({("__consumer_offsets", bytes(16)): {0: ONE}})
            (one,) = await send(broker, asked, client_id=client_id)
            assert one.error_code == code


@on_uvloop
async def test_a_refused_batch_closes_the_connection_that_wants_no_answer(tmp_path: Path) -> None:
    """So that the client hears of it, and looks for the topic again."""
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        asked = request({("orders", bytes(16)): {0: ONE, 1: ONE}}, acks=0)
        one.send(asked, version=12)
        assert await one.is_closed()
        assert topic.partitions[0].log_end_offset == 1
        assert broker.metrics.failed_requests == 0


# --- the disk ---------------------------------------------------------------------------------


@on_uvloop
async def test_a_disk_that_refuses_the_flush_fails_acks_all_and_not_what_was_refused_before(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "orders", 2)

        def flush(logs: Sequence[Log]) -> asyncio.Future[None]:
            failing = asyncio.get_running_loop().create_future()
            (log,) = logs
            log.failure = DiskFailure(tmp_path, OSError(5, "Input/output error"))
            failing.set_exception(log.failure)
            return failing

        broker.group_commit.flush = flush  # type: ignore[assignment,method-assign]
        asked = request({("orders", bytes(16)): {0: ONE, 1: damaged(ONE)}}, acks=-1)
        failed, refused = await send(broker, asked)
        assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert failed.base_offset == -1
        assert failed.error_message == f"{tmp_path}: Input/output error"
        assert refused.error_code == ErrorCode.CORRUPT_MESSAGE


@on_uvloop
async def test_a_producer_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        waited: list[asyncio.Future[None]] = []

        def flush(logs: Sequence[Log]) -> asyncio.Future[None]:
            waited.append(asyncio.get_running_loop().create_future())
            return waited[-1]

        broker.group_commit.flush = flush  # type: ignore[assignment,method-assign]
        one.send(request({("orders", bytes(16)): {0: ONE}}, acks=-1), version=12)
        await until(lambda: waited)
        one.abort()
        await until(lambda: not broker.server.connections)
        waited[0].set_result(None)
        await asyncio.sleep(0)  # in which it is told; the loop reports what goes wrong
        assert stored(topic.partitions[0]) == [b"a"]
