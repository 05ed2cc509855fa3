"""What a few bytes ask for again and again is told as often as Kafka does, within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.apis import (
    alter_partition_reassignments,
    describe_configs,
    describe_producers,
    elect_leaders,
)
from odradek.broker.errors import CloseConnection
from odradek.broker.loop import repeats
from odradek.broker.metadata.store import ResourceType
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker import live as living
from tests.broker.admin import NOW_MS, Admin, admin, create
from tests.broker.live import client, live, on_uvloop
from tests.broker.test_shares_live import SETTINGS
from tests.support.requests import creatable

LONG_NAME = "?" * 10_000


async def refuses(broker: Admin, handle: Any, request: Any, version: int) -> None:
    with pytest.raises(CloseConnection, match="again and again"):
        await broker.call(handle, request, version)


async def test_producers_of_a_partition_that_is_named_again(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("t", 2))
        topic = broker.topics.get("t")
        log = topic.log(0) if topic else None
        assert log is not None
        for number in range(100):
            batch = encode_batch(
                [Record(0, NOW_MS, None, b"v")],
                producer_id=number, producer_epoch=0, base_sequence=0,
            )  # fmt: skip
            log.append(bytearray(batch), now_ms=NOW_MS)

        def asking(*indexes: int, name: str = "t") -> DescribeProducersRequest:
            asked = TopicRequest(name=name, partition_indexes=list(indexes))
            return DescribeProducersRequest(topics=[asked, asked])

        handle = describe_producers.handle
        response = await broker.call(handle, asking(0, 1, 0, 7), 0)
        first, second = response.topics
        assert first == second and first.partitions[0] == first.partitions[2]
        assert [one.partition_index for one in first.partitions] == [0, 1, 0, 7]
        assert [len(one.active_producers) for one in first.partitions] == [100, 0, 100, 0]
        await refuses(broker, handle, asking(*1_500 * [0]), 0)
        # A sentence that has the name in it is told of each partition.
        response = await broker.call(handle, asking(0, 1, name=LONG_NAME), 0)
        assert LONG_NAME in response.topics[0].partitions[1].error_message
        await refuses(broker, handle, asking(*range(1_000), name=LONG_NAME), 0)


async def test_partitions_of_a_topic_with_a_long_name_that_is_not_there(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:

        async def answers(indexes: range) -> None:
            elections = ElectLeadersRequest(
                topic_partitions=[TopicPartitions(topic=LONG_NAME, partitions=list(indexes))],
                timeout_ms=1_000,
            )
            response = await broker.call(elect_leaders.handle, elections, 2)
            (told,) = response.replica_election_results
            assert [LONG_NAME in one.error_message for one in told.partition_result] == [
                True for _ in indexes
            ]

        async def reassigns(indexes: range) -> None:
            moves = AlterPartitionReassignmentsRequest(
                topics=[
                    ReassignableTopic(
                        name=LONG_NAME,
                        partitions=[
                            ReassignablePartition(partition_index=one, replicas=[1])
                            for one in indexes
                        ],
                    )
                ],
                timeout_ms=1_000,
            )
            response = await broker.call(alter_partition_reassignments.handle, moves, 0)
            (told,) = response.responses
            assert [LONG_NAME in one.error_message for one in told.partitions] == [
                True for _ in indexes
            ]

        for ask in (answers, reassigns):
            await ask(range(100))
            with pytest.raises(CloseConnection):
                await ask(range(1_000))


async def test_settings_of_made_up_groups_are_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "REPEATED_BYTES_MAX", repeats.REPEATED_BYTES_MAX // 10)
    async with admin(tmp_path) as broker:
        await create(broker, creatable("t"))

        def asking(kind: int, *names: str, keys: bool = False) -> DescribeConfigsRequest:
            resources = [
                DescribeConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configuration_keys=["cleanup.policy", str(at)] if keys else None,
                )
                for at, name in enumerate(names)
            ]
            return DescribeConfigsRequest(resources=resources, include_documentation=True)

        handle = describe_configs.handle
        made_up = [str(number) for number in range(800)]
        response = await broker.call(handle, asking(ResourceType.GROUP, *made_up[:100]), 4)
        assert [one.resource_name for one in response.results] == made_up[:100]
        assert all(one.configs for one in response.results)
        await refuses(broker, handle, asking(ResourceType.GROUP, *made_up), 4)
        # Nor do keys that nothing has make another question of it.
        again = 5_000 * ["t"]
        response = await broker.call(handle, asking(ResourceType.TOPIC, *again[:9], keys=True), 4)
        assert [len(one.configs) for one in response.results] == 9 * [1]
        await refuses(broker, handle, asking(ResourceType.TOPIC, *again, keys=True), 4)


@on_uvloop
async def test_a_transaction_that_is_named_again(tmp_path: Path) -> None:
    settings = {"transaction.state.log.num.partitions": "1"}
    async with live(tmp_path, settings) as broker, client(broker) as one:
        await living.create(broker, "t", partitions=100)
        init = InitProducerIdRequest(
            transactional_id="x", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        given = await one.ask(init, version=4)
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(range(100)))],
        )
        await one.ask(added, version=3)
        asked = DescribeTransactionsRequest(transactional_ids=["x", "y", "x"])
        first, unknown, again = (await one.ask(asked, version=0)).transaction_states
        assert first == again and len(first.topics[0].partitions) == 100
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        one.send(DescribeTransactionsRequest(transactional_ids=20_000 * ["x"]), version=0)
        assert await one.is_closed()


@on_uvloop
async def test_offsets_of_a_share_group_that_is_named_again(tmp_path: Path) -> None:
    def asking(count: int) -> DescribeShareGroupOffsetsRequest:
        group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
        return DescribeShareGroupOffsetsRequest(groups=count * [group])

    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        await living.create(broker, "orders", partitions=100)
        joining = ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["orders"]
        )
        await one.ask(joining, version=1)
        await living.until(lambda: broker.share_groups.partitions_of("g"))
        first, again = (await one.ask(asking(2), version=1)).groups
        assert first == again and len(first.topics[0].partitions) == 100
        one.send(asking(4_000), version=1)
        assert await one.is_closed()
