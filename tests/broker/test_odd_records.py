"""Records that no coordinator writes, and that can be read all the same: as Kafka takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from odradek.broker.coordination.seams import KeyValue, StoredBatch, Time
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.coordinator import GroupCoordinator
from odradek.broker.groups.records import OffsetRecord, decode_record
from odradek.broker.shares import state_records
from odradek.broker.transactions import records as transaction_records
from odradek.broker.transactions import state
from odradek.broker.transactions.state import Transaction
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.group_metadata import GroupMetadataKey
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from odradek.protocol.messages.transaction_log import PartitionsSchema
from tests.broker.group_fakes import FakeTopics, ManualLoop
from tests.broker.poison import classic, consumer, entry, offset
from tests.broker.poison_states import snapshot, transaction
from tests.broker.test_poisoned_logs import PoisonedTopic, StillClock


def offsets_of(*records: KeyValue) -> tuple[list[tuple[int, int]], list[str]]:
    """Replay records about the group "g"; return its offsets and the kinds of groups there are."""

    async def main() -> tuple[list[tuple[int, int]], list[str]]:
        groups = GroupCoordinator(
            PoisonedTopic([StoredBatch(list(records))]), FakeTopics(), GroupConfig(),
            time=Time(StillClock(), ManualLoop()),
        )  # fmt: skip
        await groups.load()
        asked = OffsetFetchRequestGroup(group_id="g", topics=None)
        found = groups.fetch(asked, require_stable=False)
        kinds = [one.group_type for one in groups.list_groups((), ())[1]]
        groups.close()
        return sorted(
            (one.partition_index, one.committed_offset)
            for topic in found.topics
            for one in topic.partitions
        ), kinds

    return asyncio.run(main())


def keyed(record: Sequence[bytes | None]) -> KeyValue:
    key, value = record
    assert key is not None
    return key, value


CONSUMER = [keyed(one) for one in consumer("g")]


def test_the_tombstone_of_a_classic_group_leaves_a_consumer_groups_offsets() -> None:
    tombstone = entry(GroupMetadataKey(group="g"), None)
    found = offsets_of(offset("g", 0, 10), *CONSUMER, tombstone, offset("g", 1, 20))
    assert found == ([(0, 10), (1, 20)], ["classic"])


def test_a_consumer_group_that_turns_classic_keeps_its_offsets() -> None:
    turned = keyed(classic("g", "m"))
    found = offsets_of(offset("g", 0, 10), *CONSUMER, turned, offset("g", 1, 20))
    assert found == ([(0, 10), (1, 20)], ["classic"])


def test_bytes_after_a_key_are_ignored() -> None:
    key, value = offset("g", 8, 4)
    record = decode_record(key + b"more", value)
    assert isinstance(record, OffsetRecord) and record.partition == 8
    key, value = transaction("t")
    assert transaction_records.decode_record(key + b"more", value) is not None
    key, state_value = snapshot("g", bytes(16))
    assert state_records.decode_record(key + b"more", state_value) is not None


def test_an_empty_transaction_has_no_partitions() -> None:
    partitions = [PartitionsSchema(topic="t", partition_ids=[0])]
    for status, count in ((0, 0), (1, 1)):
        key, value = transaction(
            "t", transaction_status=status, transaction_partitions=partitions
        )
        record = transaction_records.decode_record(key, value)
        assert record is not None and record.value is not None
        assert len(record.value.partitions) == count


def test_an_open_transaction_of_null_partitions_is_none() -> None:
    with pytest.raises(ProtocolError):
        transaction_records.decode_record(*transaction("t", transaction_status=1))


@pytest.mark.parametrize("known", [Transaction(-5, 1, 1), Transaction(5, 1, 1, epoch=-9)])
def test_nobody_is_given_a_negative_producer(known: Transaction) -> None:
    begun = state.initialize(known, 1_000, None, lambda: 7, 1)
    assert begun is ErrorCode.UNKNOWN_SERVER_ERROR
