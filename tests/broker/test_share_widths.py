"""Batches that span many offsets, of the log or of a stored state, part in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.composition import Broker
from odradek.broker.shares.acknowledging import Acknowledgement, acknowledge
from odradek.broker.shares.acquiring import Acquired, Asked, Span, acquire
from odradek.broker.shares.batches import RecordState, StateBatch, cut, flaw_of
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.outcomes import Write
from odradek.broker.shares.partition import PartitionConfig, SharePartition
from odradek.broker.shares.state_coordinator import all_of
from odradek.broker.shares.state_records import (
    ShareSnapshot,
    ShareState,
    decode_record,
    encode_record,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages import write_share_group_state as wire
from tests.broker.live import Client, append, batch, client, create, live, on_uvloop
from tests.broker.test_share_bounds import FetchPartition, FetchTopic, share_fetch

WIDE = 300_000
CONFIG = PartitionConfig()


def partition_of(*batches: StateBatch) -> SharePartition:
    return SharePartition(ShareState(0, 0, 0, 0, 0, batches), 0, 0, lambda: CONFIG)


def asked(offset: int, *, is_record_limit: bool = False, records_max: int = 500) -> Asked:
    return Asked("a", is_record_limit, 500, records_max, offset, 0)


def accept(partition: SharePartition, first: int, last: int) -> None:
    one = Acknowledgement(first, last, [1])
    for outcome in acknowledge(partition, "a", [one], None, 0):
        assert isinstance(outcome, Write)
        partition.written(outcome.ticket, None)


def delivery_count(partition: SharePartition) -> int:
    return sum(len(list(batch.parts())) for batch in partition.batches)


@pytest.mark.parametrize("is_record_limit", [False, True])
def test_a_wide_batch_of_the_log_is_acquired_in_parts(*, is_record_limit: bool) -> None:
    partition = partition_of()
    ranges, _ = acquire(partition, asked(0, is_record_limit=is_record_limit), [Span(0, WIDE)])
    last = 499 if is_record_limit else CONFIG.batch_max - 1
    assert ranges == [Acquired(0, last, 1)]
    accept(partition, 100, 199)
    assert delivery_count(partition) <= 10_000


def test_a_wide_batch_of_the_log_is_acquired_in_the_end() -> None:
    count = 3 * CONFIG.batch_max + 7
    partition, seen = partition_of(), []
    while partition.next_fetch_offset() < count:
        ranges, _ = acquire(partition, asked(partition.next_fetch_offset()), [Span(0, count - 1)])
        for one in ranges:
            seen += range(one.first_offset, one.last_offset + 1)
            accept(partition, one.first_offset, one.last_offset)
        assert ranges
    assert seen == list(range(count))


def test_a_wide_batch_of_a_state_parts_in_pieces() -> None:
    count = 2 * CONFIG.batch_max + 1
    partition = partition_of(StateBatch(0, count - 1, 1, RecordState.AVAILABLE))
    ranges, _ = acquire(partition, asked(0, is_record_limit=True, records_max=3), [Span(0, 9)])
    assert ranges == [Acquired(0, 2, 2)]
    assert delivery_count(partition) == CONFIG.batch_max + 2
    assert partition.end_offset == count - 1


def test_batches_past_the_end_are_cut_off() -> None:
    past = StateBatch(WIDE + 1, WIDE + 2, 1, 0)
    batches = [StateBatch(0, 4, 1, 0), StateBatch(5, WIDE, 1, 2), past]
    assert cut(batches, 7) == (StateBatch(0, 4, 1, 0), StateBatch(5, 6, 1, 2))
    assert cut(batches, 0) == ()


def test_batches_that_no_leader_can_have_sent_are_detected() -> None:
    apart = [StateBatch(2 * number, 2 * number + 1, 1, 0) for number in range(5_000)]
    assert flaw_of(apart[::-1]) is None
    assert flaw_of([*apart, StateBatch(9, 9, 2, 0)]) is not None
    assert flaw_of([StateBatch(0, number, 1, 0) for number in range(100)]) is None


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    # To combine it with another one would never end: each part that is taken off is put back.
    assert flaw_of([StateBatch(5, 4, 1, 0)]) is not None
    assert flaw_of([StateBatch(5, 5, 1, 0)]) is None


def test_a_stored_record_with_such_a_batch_is_left_out() -> None:
    key = SharePartitionKey("g", bytes(16), 0)
    backward = ShareState(1, 2, 3, 4, 5, (StateBatch(9, 12, 1, 0), StateBatch(12, 9, 2, 0)))
    with pytest.raises(ProtocolError, match="ends before it begins"):
        decode_record(*encode_record(ShareSnapshot(key, backward)))


async def write(one: Client, topic_id: bytes, *batches: StateBatch) -> ErrorCode:
    batches = [
        wire.StateBatch(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_count=batch.delivery_count,
            delivery_state=batch.state,
        )
        for batch in batches
    ]
    partition = wire.PartitionData(
        partition=0, state_epoch=0, leader_epoch=0, start_offset=0,
        delivery_complete_count=-1, state_batches=batches,
    )  # fmt: skip
    topic = wire.WriteStateData(topic_id=topic_id, partitions=[partition])
    request = wire.WriteShareGroupStateRequest(group_id="g", topics=[topic])
    answer = await one.ask(request, version=1)
    return ErrorCode(answer.results[0].partitions[0].error_code)


async def begin(broker: Broker) -> SharePartitionKey:
    """Make a topic with ten records, and the state of a share-partition of it."""
    topic = await create(broker, "orders")
    append(topic.logs[0], batch(*(10 * [b"v"])))
    key = SharePartitionKey("g", topic.topic_id, 0)
    (begun,) = await all_of([broker.shares.states.initialize(key, 0, 0)])
    assert begun.error is ErrorCode.NONE
    return key


@on_uvloop
async def test_a_state_of_many_layers_is_refused(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        key = await begin(broker)
        layers = [StateBatch(0, number, 1_000 - number, 0) for number in range(101)]
        assert await write(one, key.topic_id, *layers) is ErrorCode.INVALID_REQUEST
        assert await write(one, key.topic_id, *layers[:2]) is ErrorCode.NONE


@on_uvloop
async def test_a_stored_state_past_the_logs_end_is_fetched_up_to_it(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        key = await begin(broker)
        wide = StateBatch(0, WIDE, 1, RecordState.AVAILABLE)
        change = ShareState(0, 0, 0, 0, -1, (wide,))
        (stored,) = await all_of([broker.shares.states.write(key, change)])
        assert stored.error is ErrorCode.NONE
        topic = FetchTopic(
            topic_id=key.topic_id,
            partitions=[FetchPartition(partition_index=0, acknowledgement_batches=[])],
        )
        request = share_fetch("a", topics=[topic])
        request.max_bytes, request.max_records, request.max_wait_ms = 2**20, 500, 20_000
        answer = await one.ask(request, version=1)
        (data,) = answer.responses[0].partitions
        acquired = [
            (a.first_offset, a.last_offset, a.delivery_count) for a in data.acquired_records
        ]
        assert (data.error_code, acquired) == (ErrorCode.NONE, [(0, 9, 2)])
        served = broker.shares.partitions.find(key)
        assert served is not None and served.partition is not None
        assert served.partition.end_offset == 9
