"""Requests that are drawn too seldom and meet a listed difference: each world has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.differential.answers import Difference
from tests.differential.drawing import BROKER, TOPIC
from tests.differential.play import BY_NAME, Play
from tests.differential.world import NODE_ID, World, batch

_IN_MS = ("log.retention.ms", "log.roll.ms", "log.flush.interval.ms", "log.roll.jitter.ms")
_KEYS = (*_IN_MS, "min.insync.replicas", "node.id")
_TOPIC_KEYS = ("retention.ms", "segment.ms", "segment.jitter.ms", "min.insync.replicas")
_MAX_TIMESTAMP = -3

Found = tuple[str, Difference]


def directed(play: Play, world: World) -> Iterator[Found]:
    """Ask them, and yield differences."""
    for version in range(1, 5):
        yield from _ask(play, world, _settings(world), version)
    yield from _largest_timestamp(play, world)
    for version in range(2):
        yield from _ask(play, world, _no_operation(world), version)
    for version in range(5, 10):
        yield from _join_with_another_instance(play, world, version)


def _settings(world: World) -> DescribeConfigsRequest:
    broker = DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(NODE_ID), configuration_keys=list(_KEYS)
    )
    topic = DescribeConfigsResource(
        resource_type=TOPIC, resource_name=world.topics[0], configuration_keys=list(_TOPIC_KEYS)
    )
    return DescribeConfigsRequest(
        resources=[broker, topic, topic], include_synonyms=True, include_documentation=True
    )


def _no_operation(world: World) -> IncrementalAlterConfigsRequest:
    change = AlterableConfig(name="retention.ms", config_operation=9, value="1")
    topic = AlterConfigsResource(
        resource_type=TOPIC, resource_name=world.topics[0], configs=[change]
    )
    return IncrementalAlterConfigsRequest(resources=[topic], validate_only=False)


def _largest_timestamp(play: Play, world: World) -> Iterator[Found]:
    """Ask for it where all records are deleted."""
    topic = world.topics[0]
    part = PartitionProduceData(index=0, records=batch(b"a", b"b"))
    data = TopicProduceData(
        name=topic, topic_id=world.topic_ids[topic], partition_data=[part]
    )
    produced = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data])
    yield from _ask(play, world, produced, 12)
    cut = DeleteRecordsPartition(partition_index=0, offset=-1)
    deleted = DeleteRecordsTopic(name=topic, partitions=[cut])
    deletion = DeleteRecordsRequest(topics=[deleted], timeout_ms=20_000)
    yield from _ask(play, world, deletion, 2)
    asked = ListOffsetsPartition(partition_index=0, timestamp=_MAX_TIMESTAMP)
    listing = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    yield from _ask(play, world, listing, 7)


def _join_with_another_instance(play: Play, world: World, version: int) -> Iterator[Found]:
    joining = JoinGroupRequest(
        group_id=f"instance-{version}-{world.seed}",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    yield from _ask(play, world, joining, version)
    joining.member_id = world.members[-1].member_id
    joining.group_instance_id = "static"
    yield from _ask(play, world, joining, version)


def _ask(play: Play, world: World, request: Any, version: int) -> Iterator[Found]:
    api = BY_NAME[type(request).__name__.removesuffix("Request")]
    for one in play.ask(world, api, version, request):
        yield f"directed {request}", one
