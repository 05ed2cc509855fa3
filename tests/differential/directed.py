"""Requests that are drawn too seldom and meet a listed difference: each world has them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from odradek.config.option import DAY_MS
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.alter_configs import AlterableConfig as AlterableSetting
from odradek.protocol.messages.alter_configs import AlterConfigsRequest
from odradek.protocol.messages.alter_configs import AlterConfigsResource as Settings
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.produce import (
    ProduceRequest,
)
from odradek.protocol.messages.push_telemetry import PushTelemetryRequest
from tests.broker.raw_batches import RawBatch, RawRecord
from tests.differential.answers import Difference
from tests.differential.corners import corners
from tests.differential.group_requests import joining
from tests.differential.play import BY_NAME, Play
from tests.differential.strangers import strangers
from tests.differential.world import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    LOGGER,
    NODE_ID,
    TOPIC,
    World,
    batch,
)
from tests.support.requests import listing_offsets, producing
from tests.support.waiting import wait_until

_IN_MS = ("log.retention.ms", "log.roll.ms", "log.flush.interval.ms", "log.roll.jitter.ms")
_KEYS = (*_IN_MS, "min.insync.replicas", "node.id", "broker.id")
_TOPIC_KEYS = (
    *("retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms", "min.insync.replicas"),
)
_MAX_TIMESTAMP = -3

Found = tuple[str, Difference]


def directed(play: Play, world: World) -> Iterator[Found]:
    """Ask them, and yield differences."""
    for version in range(1, 5):
        yield from _ask(play, world, _settings(world), version)
    yield from _largest_timestamp(play, world)
    yield from _timestamps_past_the_start(play, world)
    for version in range(4):
        yield from _ask(play, world, _too_many_partitions(world), version)
    yield from _asked_again(play, world)
    yield from _client_comes_back(play, world)
    for request in _no_operations(world):
        yield from _ask(play, world, request, 1)
    for unordered, version in _in_no_order():
        yield from _ask(play, world, unordered, version)
    for named in _entities_named_twice():
        yield from _ask(play, world, named, 1)
    for corner, version in (*corners(world), *strangers(world)):
        yield from _ask(play, world, corner, version)
    for version in range(5, 10):
        yield from _join_with_another_instance(play, world, version)


def _settings(world: World) -> DescribeConfigsRequest:
    broker = DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(NODE_ID), configuration_keys=list(_KEYS)
    )
    topic = DescribeConfigsResource(
        resource_type=TOPIC, resource_name=world.topics[0], configuration_keys=list(_TOPIC_KEYS)
    )
    all_of_topics = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=keys)
        for name, keys in zip(world.topics[1:], (None, []), strict=False)
    ]
    return DescribeConfigsRequest(
        resources=[broker, topic, topic, *all_of_topics],
        include_synonyms=True,
        include_documentation=True,
    )


def _no_operations(world: World) -> Iterator[IncrementalAlterConfigsRequest]:
    """Ask for an operation that there is not, among others of which some are refused before."""
    topic, other = world.topics[:2]
    for wanted in (
        *([(kind, "g", "a", 3), (kind, "g", "b", 9)] for kind in (GROUP, CLIENT_METRICS)),
        [(TOPIC, topic, "retention.ms", 9), (BROKER, str(NODE_ID), "max.connections", 0)],
        [(TOPIC, topic, "retention.ms", -1), (BROKER, str(NODE_ID), "max.connections", 9)],
        [(BROKER, str(NODE_ID), "max.connections", 9), (TOPIC, other, "retention.ms", 2)],
        [(GROUP, "g", "consumer.session.timeout.ms", 9), (TOPIC, "a/b", "retention.ms", 0)],
        [(LOGGER, str(NODE_ID), "root", 9), (TOPIC, "nowhere", "retention.ms", 0)],
        [(GROUP, "g", "no.list", 3), (GROUP, "h", "no.such", 9), (TOPIC, topic, "x", 0)],
        [(TOPIC, topic, "retention.ms", 9), (LOGGER, "7", "root", 0), (77, "x", "y", 0)],
        # The order of the settings of one resource is a hash table's.
        [(TOPIC, topic, "segment.bytes", 3), (TOPIC, topic, "max.message.bytes", 9)],
        [(TOPIC, topic, "segment.bytes", 9), (TOPIC, topic, "max.message.bytes", 3)],
        [(TOPIC, topic, "segment.bytes", 2), (TOPIC, topic, "max.message.bytes", 3)],
        [(TOPIC, topic, "max.message.bytes", 3), (TOPIC, topic, "segment.bytes", 2)],
        [(BROKER, str(NODE_ID), key, 3) for key in ("max.connections", "log.retention.ms")],
    ):
        operations: dict[tuple[int, str], list[AlterableConfig]] = {}
        for kind, name, key, operation in wanted:
            one = AlterableConfig(name=key, config_operation=operation, value="1")
            operations.setdefault((kind, name), []).append(one)
        resources = [
            AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
            for (kind, name), configs in operations.items()
        ]
        yield IncrementalAlterConfigsRequest(resources=resources, validate_only=True)


def _in_no_order() -> Iterator[tuple[Any, int]]:
    """Ask for several of a kind, which Kafka tells in the order of a hash table."""
    states = [f"State{number}" for number in range(5)]
    yield ListTransactionsRequest(state_filters=states, producer_id_filters=[]), 0
    fixed = [AlterableSetting(name=name, value="1") for name in ("num.partitions", "node.id")]
    broker = Settings(resource_type=BROKER, resource_name=str(NODE_ID), configs=fixed)
    yield AlterConfigsRequest(resources=[broker], validate_only=True), 2


def _entities_named_twice() -> Iterator[AlterClientQuotasRequest]:
    """Name entities by several parts, whose order in the error's text is a hash table's."""
    for kinds in (
        ("ip", "client-id", "user"),
        ("user", "client-id"),
        ("user", "ip", "user", "client-id", "user"),
        (".", "ip", "client-id", " ", "user"),
    ):
        entity = [EntityData(entity_type=kind, entity_name="nobody") for kind in kinds]
        operation = OpData(key="consumer_byte_rate", value=1e9, remove=False)
        for operations in ([operation], [operation, operation]):
            entry = EntryData(entity=entity, ops=operations)
            yield AlterClientQuotasRequest(entries=[entry], validate_only=True)


def _too_many_partitions(world: World) -> CreatePartitionsRequest:
    """Ask for more than a request may, which Kafka would create in part: so only validate."""
    counts = (20_000, 4, 20_000, 2**31 - 1, 2**31 - 1)
    names = (*world.topics[:3], world.topics[3], world.topics[3])
    return CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in zip(names, counts, strict=True)
        ],
        timeout_ms=20_000,
        validate_only=True,
    )


def _largest_timestamp(play: Play, world: World) -> Iterator[Found]:
    """Ask for it where there is none, where there is one, and where all records are deleted."""
    topic = world.topics[0]
    listing = listing_offsets({topic: [2]}, _MAX_TIMESTAMP)
    timeless = RawBatch((RawRecord(), RawRecord())).encode()
    for records in (timeless, timeless, batch(b"a", b"b"), batch(b"a", b"b")):
        yield from _ask(play, world, _producing(world, topic, records), 12)
        yield from _ask(play, world, listing, 7)
    yield from _ask(play, world, _deletion(topic, -1), 2)
    yield from _ask(play, world, listing, 7)


def _timestamps_past_the_start(play: Play, world: World) -> Iterator[Found]:
    """Look for a timestamp that a segment has which is below the log's start, and the next one."""
    topic = world.topics[1]
    listing = listing_offsets({topic: [2]}, 1_000)
    for timestamp in (1_000, 1_000 + 10 * DAY_MS):  # a segment is a week long
        records = encode_batch([Record(0, timestamp, b"k", b"v")])
        yield from _ask(play, world, _producing(world, topic, records), 12)
    yield from _ask(play, world, listing, 7)
    yield from _ask(play, world, _deletion(topic, 1), 2)
    yield from _ask(play, world, listing, 7)


def _producing(world: World, topic: str, records: bytes) -> ProduceRequest:
    return producing(topic, records, topic_id=world.topic_ids[topic], partition=2)


def _deletion(topic: str, offset: int) -> DeleteRecordsRequest:
    cut = DeleteRecordsPartition(partition_index=2, offset=offset)
    deleted = DeleteRecordsTopic(name=topic, partitions=[cut])
    return DeleteRecordsRequest(topics=[deleted], timeout_ms=20_000)


def _asked_again(play: Play, world: World) -> Iterator[Found]:
    """Name groups several times in one request."""
    names = [world.groups[0], f"nobody-{world.seed}", world.groups[0]]
    for version in range(7):
        yield from _ask(play, world, DescribeGroupsRequest(groups=names), version)
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    for version in range(8, 11):
        yield from _ask(play, world, OffsetFetchRequest(groups=groups), version)


def _client_comes_back(play: Play, world: World) -> Iterator[Found]:
    """Ask for a client's subscription over connections that are closed in between.

    Kafka takes note of that a little later, so both are asked until a client is new to them.
    """
    first, second = (Random(f"back {world.seed} {number}").randbytes(16) for number in range(2))
    subscribe = [
        GetTelemetrySubscriptionsRequest(client_instance_id=one) for one in (first, second)
    ]
    end = PushTelemetryRequest(
        client_instance_id=second,
        subscription_id=7,
        terminating=True,
        compression_type=0,
        metrics=b"",
    )
    for request in (*subscribe, *subscribe, end, end):
        yield from _ask(play, world, request, 0)
    play.reconnect()
    # The one that came last on that connection is forgotten with it, the other one is not.
    for peer in (play.ours, play.theirs):
        wait_until(
            lambda peer=peer: not peer.ask(subscribe[1], 0).error_code,  # type: ignore[misc]
            "the end of a connection is noticed",
        )
    for request in (*subscribe, end, end):
        yield from _ask(play, world, request, 0)


def _join_with_another_instance(play: Play, world: World, version: int) -> Iterator[Found]:
    request = joining(f"instance-{version}-{world.seed}")
    yield from _ask(play, world, request, version)
    request.member_id = world.members[-1].member_id
    request.group_instance_id = "static"
    yield from _ask(play, world, request, version)


def _ask(play: Play, world: World, request: Any, version: int) -> Iterator[Found]:
    api = BY_NAME[type(request).__name__.removesuffix("Request")]
    for one in play.ask(world, api, version, request):
        yield f"directed {request}", one
