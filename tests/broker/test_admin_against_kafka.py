"""The admin APIs beside Apache Kafka: the same requests, the same answers.

One script of requests goes to both brokers, ours in this process and Kafka as a process of its
own. Answers are compared field by field, but for topic ids, which are random, and for the
sentences of codes that come without an explanation, which are our own.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.api_table import BY_KEY
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import snake_case
from odradek.protocol.messages.alter_configs import AlterableConfig as NewConfig
from odradek.protocol.messages.alter_configs import AlterConfigsRequest
from odradek.protocol.messages.alter_configs import AlterConfigsResource as NewConfigs
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.schema import info_of
from odradek.protocol.wire import ZERO_UUID
from tests.broker.admin import Admin, admin
from tests.broker.beside_kafka import SETTINGS, BesideKafka
from tests.broker.kafka_peer import Peer
from tests.support.asking import delete_topics
from tests.support.requests import creatable
from tests.support.waiting import last_answer

STRANGER = bytes(range(1, 17))
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = 2, 4

# Differences that are meant to be, as patterns of ours and of Kafka's message.
KNOWN_MESSAGES = [
    # Java prints the name of a class before a set.
    (r"Cannot update these configs .*: \[.*\]", r"Cannot update these configs .*: Set\(.*\)"),
    # Options of listeners are refused for what they are, as long as there is no TLS.
    (r"Cannot update these configs at default.*", r"These security configs can be .*"),
]
# And as patterns of where an answer differs.
KNOWN_PLACES = [
    # Kafka's ConfigHelper forgets what stands in for an option in ms: hours, minutes and so on.
    r".*\[(retention|segment|segment\.jitter|flush)\.ms\]\.(synonyms|config_source)",
]
# Options of Kafka 4.4, which Kafka 4.3 does not tell of.
LATER_OPTIONS = {
    "errors.deadletterqueue.group.enable",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
}


def topics(*wanted: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(wanted), timeout_ms=10_000, validate_only=validate_only)


def names(*wanted: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=name) for name in wanted],
        allow_auto_topic_creation=True,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )


def more(name: str, count: int, *brokers: int) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=[one]) for one in brokers]
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments or None)


def change(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def replace(kind: int, name: str, **configs: str | None) -> AlterConfigsRequest:
    made = [NewConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = NewConfigs(resource_type=kind, resource_name=name, configs=made)
    return AlterConfigsRequest(resources=[resource], validate_only=False)


def describe(kind: int, name: str, *keys: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=False
    )


def epochs(topic: str, *asked: tuple[int, int, int]) -> OffsetForLeaderEpochRequest:
    partitions = [
        OffsetForLeaderPartition(partition=number, current_leader_epoch=now, leader_epoch=epoch)
        for number, now, epoch in asked
    ]
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=partitions)]
    )


def cut(topic: str, *asked: tuple[int, int]) -> DeleteRecordsRequest:
    partitions = [
        DeleteRecordsPartition(partition_index=number, offset=offset) for number, offset in asked
    ]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=10_000
    )


def deletion(*states: tuple[str | None, bytes]) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states],
        topic_names=[],
        timeout_ms=10_000,
    )


def producer(transactional_id: str | None, producer_id: int, epoch: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


REFUSED_TOPICS = (
    creatable("a/b"),
    creatable("."),
    creatable(".."),
    creatable(""),
    creatable("x" * 250),
    creatable("orders"),
    creatable("a_b"),
    creatable("__cluster_metadata"),
    creatable("zero", 0),
    creatable("minus", -2),
    creatable("none", 1, 0),
    creatable("two", 1, 2),
    creatable("null", configs={"retention.ms": None, "segment.ms": "1000"}),
    creatable("unknown", configs={"no.such": "1"}),
    creatable("word", configs={"retention.ms": "soon"}),
    creatable("low", configs={"retention.ms": "-2"}),
    creatable("policy", configs={"cleanup.policy": "compact,archive"}),
    creatable("lags", configs={"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}),
    creatable("both", -1, 1, assignments={0: [1]}),
    creatable("each", 1, -1, assignments={0: [1]}),
    creatable("gap", -1, -1, assignments={0: [1], 2: [1]}),
    creatable("empty", -1, -1, assignments={0: []}),
    creatable("stranger", -1, -1, assignments={0: [1, 2]}),
    creatable("repeated", -1, -1, assignments={0: [1, 1]}),
    creatable("repeat"),
    creatable("repeat", 2),
)

SCRIPT: list[Any] = [
    topics(
        creatable("orders", 3, configs={"cleanup.policy": "compact"}), creatable("a.b", -1, -1)
    ),
    topics(creatable("by.hand", -1, -1, assignments={1: [1], 0: [1]}), creatable("spare")),
    *(topics(one) for one in REFUSED_TOPICS[:-2]),
    topics(*REFUSED_TOPICS),
    topics(creatable("later", 2, configs={"retention.ms": "7"}), validate_only=True),
    names("orders", "a.b", "nowhere", "not/legal", "__share_group_state"),
    names(),
    MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=STRANGER, name=None)],
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    ),
    DescribeClusterRequest(include_cluster_authorized_operations=True),
    DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2),
    DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=9),
    ApiVersionsRequest(client_software_name="-", client_software_version="1"),
    CreatePartitionsRequest(
        topics=[
            more("orders", 4),
            more("by.hand", 4, 1, 1),
            more("a.b", 1),
            more("spare", 0),
            more("nowhere", 2),
        ],
        timeout_ms=10_000,
        validate_only=False,
    ),
    CreatePartitionsRequest(
        topics=[more("orders", 5, 2), more("a.b", 3, 1), more("spare", 2), more("spare", 3)],
        timeout_ms=10_000,
        validate_only=True,
    ),
    describe(TOPIC, "orders"),
    describe(TOPIC, "spare", "retention.ms", "cleanup.policy", "no.such"),
    describe(TOPIC, "nowhere"),
    describe(TOPIC, "a/b"),
    describe(TOPIC, ""),
    describe(BROKER, "1", "log.retention.ms", "log.retention.hours", "num.partitions"),
    describe(BROKER, ""),
    describe(BROKER, "7"),
    describe(BROKER, "x"),
    change(TOPIC, "orders", ("cleanup.policy", APPEND, "delete"), ("segment.ms", SET, "1000")),
    describe(TOPIC, "orders", "cleanup.policy", "segment.ms"),
    change(TOPIC, "orders", ("cleanup.policy", SUBTRACT, "compact"), ("segment.ms", DELETE, None)),
    describe(TOPIC, "orders", "cleanup.policy", "segment.ms"),
    change(TOPIC, "spare", ("cleanup.policy", APPEND, "compact")),
    describe(TOPIC, "spare", "cleanup.policy"),
    change(TOPIC, "orders", ("retention.ms", APPEND, "1")),
    change(TOPIC, "orders", ("no.such", SUBTRACT, "1")),
    change(TOPIC, "orders", ("no.such", SET, "1")),
    change(TOPIC, "orders", ("no.such", DELETE, None)),
    change(TOPIC, "orders", ("retention.ms", SET, "soon")),
    change(TOPIC, "orders", ("retention.ms", SET, None), ("segment.ms", APPEND, None)),
    change(TOPIC, "orders", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
    change(TOPIC, "nowhere", ("retention.ms", SET, "1")),
    change(TOPIC, "", ("retention.ms", SET, "1")),
    change(TOPIC, "a/b", ("retention.ms", SET, "1")),
    change(BROKER, "7", ("log.retention.ms", SET, "1")),
    change(BROKER, "x", ("log.retention.ms", SET, "1")),
    change(BROKER, "1", ("num.partitions", SET, "1")),
    change(BROKER, "", ("ssl.keystore.type", SET, "PEM")),
    change(BROKER, "1", ("log.retention.ms", SET, "soon")),
    change(BROKER, "1", ("log.retention.ms", APPEND, "1")),
    change(BROKER, "1", ("log.retention.ms", SUBTRACT, "1")),
    change(BROKER, "1", ("log.cleanup.policy", APPEND, "compact")),
    describe(BROKER, "1", "log.cleanup.policy"),
    change(BROKER, "1", ("log.cleanup.policy", SUBTRACT, "delete")),
    describe(BROKER, "1", "log.cleanup.policy"),
    change(BROKER, "1", ("log.cleanup.policy", DELETE, None)),
    change(BROKER, "1", ("log.retention.ms", 9, "1")),
    change(BROKER, "1", ("no.such", SET, "1")),
    describe(BROKER, "1", "no.such"),
    change(BROKER, "1", ("no.such", DELETE, None)),
    change(BROKER, "", ("log.retention.ms", SET, "90000")),
    describe(BROKER, "", "log.retention.ms"),
    change(BROKER, "1", ("log.retention.ms", SET, "80000")),
    describe(BROKER, "1", "log.retention.ms"),
    describe(TOPIC, "a.b", "retention.ms"),
    change(BROKER, "1", ("log.retention.ms", DELETE, None)),
    describe(TOPIC, "a.b", "retention.ms"),
    replace(BROKER, "1", log_cleaner_backoff_ms="20000"),
    describe(BROKER, "1", "log.cleaner.backoff.ms", "log.retention.ms"),
    replace(TOPIC, "orders", retention_ms="9"),
    describe(TOPIC, "orders", "retention.ms", "cleanup.policy"),
    replace(TOPIC, "orders", retention_ms=None),
    replace(TOPIC, "orders", retention_ms="soon"),
    replace(TOPIC, "nowhere", retention_ms="1"),
    replace(BROKER, "1", num_partitions="4"),
    *(epochs("orders", (0, now, 0), (9, now, 0)) for now in (-1, 0, 1)),
    epochs("orders", (0, -1, 9), (1, -1, -1)),
    epochs("nowhere", (0, -1, 0)),
    *(cut("spare", (0, offset), (9, 0)) for offset in (0, -1, -2, 1)),
    cut("nowhere", (0, 0)),
    producer(None, 7, -1),
    producer(None, -1, 7),
    deletion(("by.hand", ZERO_UUID), ("nowhere", ZERO_UUID)),
    deletion(("a.b", STRANGER), (None, STRANGER), (None, ZERO_UUID)),
    deletion(("a.b", ZERO_UUID), ("a.b", ZERO_UUID)),
    names("by.hand", "a.b"),
]


# What the script has changed of the broker, which others use after it.
UNDONE = [
    change(BROKER, "", ("log.retention.ms", DELETE, None)),
    change(BROKER, "1", ("log.cleaner.backoff.ms", DELETE, None)),
]


@pytest.mark.kafka
@pytest.mark.slow
async def test_the_same_requests_get_the_same_answers(
    beside_kafka: BesideKafka, tmp_path: Path
) -> None:
    port, differences = beside_kafka.theirs.port, []
    async with admin(tmp_path / "ours", {"node.id": "1", **SETTINGS}) as broker:
        for number, request in enumerate(SCRIPT):
            ours = normal(await _ask_ours(broker, request))
            found = _differences(ours, request, port)
            differences += [f"{number} {type(request).__name__}{one}" for one in found]
    for request in UNDONE:
        _ask_kafka(port, request)
    with Peer(port) as peer:
        delete_topics(peer, "orders", "spare")
    assert not differences, "\n".join(differences)


def _differences(ours: Any, request: Any, port: int) -> list[str]:
    """Compare with Kafka, whose broker hears of its controller's changes a little later."""
    return last_answer(
        lambda: compare(ours, normal(_ask_kafka(port, request))),
        lambda found: not found or not _only_asks(request),
    )


def _only_asks(request: Any) -> bool:
    return isinstance(request, MetadataRequest | DescribeConfigsRequest)


async def _ask_ours(broker: Admin, request: Any) -> Any:
    api = BY_KEY[info_of(type(request)).key]
    handle = importlib.import_module(f"odradek.broker.apis.{snake_case(api.name)}").handle
    return await broker.call(handle, request, api.last)


def _ask_kafka(port: int, request: Any) -> Any:
    with Peer(port) as peer:
        return peer.ask(request, BY_KEY[info_of(type(request)).key].last)


def normal(value: Any) -> Any:
    """Turn a response into plain values, without what is random in it."""
    if is_dataclass(value):
        found = {one.name: normal(getattr(value, one.name)) for one in fields(value)}
        if "topic_id" in found:
            found["topic_id"] = bool(found["topic_id"].strip(b"\x00"))
        for own in ("cluster_id", "brokers"):
            found.pop(own, None)
        return found
    if isinstance(value, list):
        return [normal(one) for one in value]
    return value


def compare(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Return where two answers differ, but for what is known."""
    if any(re.fullmatch(place, where) for place in KNOWN_PLACES):
        return []
    if isinstance(ours, dict):
        keys = [key for key in ours if key != "error_message" or not _alike(ours, theirs)]
        return [
            found for key in keys for found in compare(ours[key], theirs[key], f"{where}.{key}")
        ]
    if isinstance(ours, list) and any(isinstance(one, dict) for one in (*ours, *theirs)):
        mine, other = _by_identity(ours), _by_identity(theirs)
        mine = {key: one for key, one in mine.items() if one.get("name") not in LATER_OPTIONS}
        if mine.keys() != other.keys():
            only_mine, only_other = mine.keys() - other.keys(), other.keys() - mine.keys()
            return [f"{where}: only ours {only_mine}, only Kafka's {only_other}"]
        return [
            found for key in mine for found in compare(mine[key], other[key], f"{where}[{key}]")
        ]
    return [] if ours == theirs else [f"{where}: ours {ours!r}, Kafka's {theirs!r}"]


def _by_identity(items: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return items by what names them: neither broker promises an order."""
    keys = ("name", "partition", "partition_index", "resource_name", "source", "error_code")
    named = {" ".join(str(one[key]) for key in keys if key in one): one for one in items}
    assert len(named) == len(items), "items that cannot be told apart"
    return named


def _alike(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Return whether two messages say the same: one of ours may be its code's own sentence."""
    mine, other = ours["error_message"], theirs["error_message"]
    sentences = {int(code): code.sentence for code in ErrorCode}
    if mine == other or mine == sentences[ours["error_code"]]:
        return True
    return any(
        re.fullmatch(one, mine or "") and re.fullmatch(two, other or "")
        for one, two in KNOWN_MESSAGES
    )
