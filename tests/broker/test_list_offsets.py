"""ListOffsets: the ends of a log and the records at a time, at every version that knows them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.api_table import BY_KEY
from odradek.broker.apis.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from odradek.broker.composition import Broker
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.storage.errors import CorruptFile
from odradek.storage.log import Log
from tests.broker.live import append, client, create, live, on_uvloop

FIRST, LAST = BY_KEY[2].first, BY_KEY[2].last
VERSIONS = range(FIRST, LAST + 1)
EPOCHS_SINCE = 4

Wanted = tuple[int, int]  # partition, timestamp


async def ask(
    broker: Broker,
    *wanted: Wanted,
    version: int = LAST,
    name: str = "orders",
    epoch: int = -1,
    isolation: int = 0,
) -> list[ListOffsetsPartitionResponse]:
    parts = [
        ListOffsetsPartition(partition_index=at, timestamp=time, current_leader_epoch=epoch)
        for at, time in wanted
    ]
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=parts)],
        timeout_ms=1000,
    )
    async with client(broker) as one:
        response = await one.ask(request, version=version)
    (topic,) = response.topics
    assert topic.name == name
    # In the order of Kafka's map, which test_response_orders_against_kafka compares.
    found = {one.partition_index: one for one in topic.partitions}
    assert len(found) == len(topic.partitions)
    assert found.keys() == {at for at, _ in wanted}
    return [found[at] for at in dict.fromkeys(at for at, _ in wanted)]


async def look(broker: Broker, timestamp: int, **how: Any) -> tuple[int, int]:
    """Return the (timestamp, offset) found in partition 0."""
    (one,) = await ask(broker, (0, timestamp), **how)
    assert one.error_code == 0
    return one.timestamp, one.offset


def timed(*timestamps: int, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(at, time, b"k", b"v") for at, time in enumerate(timestamps)]
    return encode_batch(records, codec=codec)


@on_uvloop
async def test_the_ends_of_a_log_are_answered_at_every_version(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", 2)
        (log, _) = topic.partitions
        append(log, timed(10, 30), timed(20))
        log.advance_start_offset(1)
        for version in VERSIONS:
            for isolation in (0, 1):
                how: dict[str, Any] = {"version": version, "isolation": isolation}
                used, empty = await ask(broker, (0, LATEST), (1, LATEST), **how)
                assert (used.timestamp, used.offset, used.error_code) == (-1, 3, 0)
                assert (empty.timestamp, empty.offset, empty.error_code) == (-1, 0, 0)
                assert used.leader_epoch == (0 if version >= EPOCHS_SINCE else -1)
                used, empty = await ask(broker, (0, EARLIEST), (1, EARLIEST), **how)
                assert (used.timestamp, used.offset, used.error_code) == (-1, 1, 0)
                assert (empty.timestamp, empty.offset, empty.error_code) == (-1, 0, 0)


@on_uvloop
async def test_special_timestamps_are_known_from_a_version_on(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        append(topic.partitions[0], timed(10, 30, 30), timed(20))
        for timestamp, since, found in (
            (MAX_TIMESTAMP, 7, (30, 1)),
            (EARLIEST_LOCAL, 8, (-1, 0)),
            (LATEST_TIERED, 9, (-1, -1)),
            (EARLIEST_PENDING_UPLOAD, 11, (-1, -1)),
            (-7, LAST + 1, None),
            (-(2**63), LAST + 1, None),
        ):
            for version in VERSIONS:
                (one,) = await ask(broker, (0, timestamp), version=version)
                if version < since:
                    assert one.error_code == ErrorCode.UNSUPPORTED_VERSION
                    assert (one.timestamp, one.offset, one.leader_epoch) == (-1, -1, -1)
                else:
                    assert (one.error_code, (one.timestamp, one.offset)) == (0, found)


@on_uvloop
async def test_an_empty_log_has_no_record_at_any_time(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        for timestamp in (0, 2**62, MAX_TIMESTAMP):
            assert await look(broker, timestamp) == (-1, -1)
        append(topic.partitions[0], timed(10))
        topic.partitions[0].advance_start_offset(1)
        assert await look(broker, 0) == (-1, -1)


@on_uvloop
async def test_the_record_at_a_time_is_the_first_that_is_not_older(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        (log,) = topic.partitions
        append(log, timed(10, 30, 20), timed(5, codec=Codec.GZIP))
        log.roll(0)
        append(log, timed(40, 25, codec=Codec.ZSTD))
        log.advance_start_offset(2)
        for version in VERSIONS:
            for timestamp, found in (
                (0, (20, 2)),  # what lies before the log's start is not looked at
                (20, (20, 2)),
                (21, (40, 4)),
                (40, (40, 4)),
                (41, (-1, -1)),
                (2**63 - 1, (-1, -1)),
            ):
                assert await look(broker, timestamp, version=version) == found


@on_uvloop
async def test_a_missing_topic_or_partition_is_answered_with_an_error(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "orders")
        for version in VERSIONS:
            for timestamp in (LATEST, EARLIEST, 0):
                strange, fine = await ask(broker, (1, timestamp), (0, timestamp), version=version)
                assert strange.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                assert (strange.timestamp, strange.offset) == (-1, -1)
                assert fine.error_code == 0
                (unknown,) = await ask(broker, (0, timestamp), name="nowhere", version=version)
                assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@on_uvloop
async def test_a_partition_that_is_named_twice_is_refused_once(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "orders", 2)
        twice, fine = await ask(broker, (0, LATEST), (1, LATEST), (0, EARLIEST))
        assert twice.error_code == ErrorCode.INVALID_REQUEST
        assert fine.error_code == 0


@on_uvloop
async def test_a_topic_without_partitions_is_not_answered(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "orders")
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name="orders", partitions=[])],
            timeout_ms=1000,
        )
        async with client(broker) as one:
            for version in VERSIONS:
                assert (await one.ask(request, version=version)).topics == []


@on_uvloop
async def test_a_reader_with_another_epoch_in_mind_is_fenced(tmp_path: Path) -> None:
    unknown, fenced = ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH
    async with live(tmp_path) as broker:
        await create(broker, "orders")
        for version in (EPOCHS_SINCE, LAST):
            for epoch, code in ((-1, 0), (0, 0), (1, unknown), (-2, fenced)):
                (one,) = await ask(broker, (0, LATEST), version=version, epoch=epoch)
                assert one.error_code == code


@on_uvloop
async def test_a_search_by_time_runs_in_a_thread_and_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []
    original = Log.offset_for_timestamp

    def search(self: Log, timestamp: int) -> Any:
        searched.append(threading.current_thread().name)
        if self.partition == 1:
            raise CorruptFile(tmp_path, 7, "it was eaten")
        return original(self, timestamp)

    monkeypatch.setattr(Log, "offset_for_timestamp", search)
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders", 3)
        for log in topic.partitions:
            append(log, timed(10))
        first, eaten, last = await ask(broker, (0, 5), (1, 5), (2, LATEST))
        assert (first.error_code, first.timestamp, first.offset) == (0, 10, 0)
        assert (eaten.error_code, eaten.offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
        assert (last.error_code, last.offset) == (0, 1)
        assert all(name.startswith("read") for name in searched)
