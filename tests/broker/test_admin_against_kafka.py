"""The admin APIs beside Apache Kafka: the same requests, the same answers.

One script of requests goes to both brokers, ours in this process and Kafka as a process of its
own. Answers are compared field by field, but for topic ids, which are random, and for the
sentences of codes that come without an explanation, which are our own.
"""

from __future__ import annotations

import importlib
import inspect
import re
import socket
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess
from broker.apis import BY_KEY
from protocol.compiler import decode
from protocol.errors import ErrorCode
from protocol.frames import encode_request, read_response_header
from protocol.messages import message_classes, snake_case
from protocol.messages.alter_configs import AlterableConfig as NewConfig
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.alter_configs import AlterConfigsResource as NewConfigs
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.schema import info_of
from protocol.wire import ZERO_UUID
from tests.broker.admin import Admin, admin, creatable

SETTINGS = {"auto.create.topics.enable": "false", "log.retention.hours": "3"}
STRANGER = bytes(range(1, 17))
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = 2, 4

# What differs and is meant to: a pattern of ours, and of Kafka's, for the text of a message.
KNOWN_DIFFERENCES = [
    # Ours says how many there may be.
    ("Unable to perform excessively large batch operation: .*", ".*excessively large.*"),
    # Java prints a set, and the name of a class before it.
    (r"(Cannot update these configs .*): \[(.*)\]", r"\1: Set\(\2\)"),
]


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
    names("orders", "a.b", "nowhere", "not/legal", "__consumer_offsets"),
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
    describe(BROKER, "1", "log.retention.ms", "log.retention.hours", "num.partitions", "node.id"),
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
    change(BROKER, "", ("log.retention.ms", SET, "90000")),
    describe(BROKER, "", "log.retention.ms"),
    change(BROKER, "1", ("log.retention.ms", SET, "80000")),
    describe(BROKER, "1", "log.retention.ms"),
    describe(TOPIC, "a.b", "retention.ms"),
    change(BROKER, "1", ("log.retention.ms", DELETE, None)),
    describe(TOPIC, "a.b", "retention.ms"),
    replace(BROKER, "", log_cleaner_backoff_ms="20000"),
    describe(BROKER, ""),
    replace(TOPIC, "orders", retention_ms="9"),
    describe(TOPIC, "orders", "retention.ms", "cleanup.policy"),
    replace(TOPIC, "orders", retention_ms=None),
    replace(TOPIC, "orders", retention_ms="soon"),
    replace(TOPIC, "nowhere", retention_ms="1"),
    replace(BROKER, "1", num_partitions="4"),
    epochs("orders", (0, -1, 0), (0, 0, 0), (0, 1, 0), (0, -1, 9), (9, -1, 0)),
    epochs("nowhere", (0, -1, 0)),
    cut("spare", (0, 0), (0, -1), (0, -2), (0, 1), (9, 0)),
    cut("nowhere", (0, 0)),
    producer(None, 7, -1),
    producer(None, -1, 7),
    producer("", -1, -1),
    deletion(("by.hand", ZERO_UUID), ("nowhere", ZERO_UUID)),
    deletion(("a.b", STRANGER), (None, STRANGER), (None, ZERO_UUID)),
    deletion(("a.b", ZERO_UUID), ("a.b", ZERO_UUID)),
    names("by.hand", "a.b"),
]


@pytest.mark.kafka
@pytest.mark.slow
async def test_the_same_requests_get_the_same_answers(tmp_path: Path) -> None:
    peer = KafkaProcess(tmp_path / "kafka", SETTINGS)
    differences = []
    try:
        peer.start()
        async with admin(tmp_path / "ours", SETTINGS) as broker:
            for number, request in enumerate(SCRIPT):
                for version in _versions(request):
                    ours = normal(await _ask_ours(broker, request, version))
                    theirs = normal(_ask_kafka(peer.port, request, version))
                    name = f"{number} {type(request).__name__} v{version}"
                    differences += [f"{name}{one}" for one in compare(ours, theirs)]
    finally:
        peer.stop()
    assert differences == []


def _versions(request: Any) -> list[int]:
    """Return the versions to send a request in: only the last, unless it changes nothing."""
    return [BY_KEY[info_of(type(request)).key].last]


async def _ask_ours(broker: Admin, request: Any, version: int) -> Any:
    api = BY_KEY[info_of(type(request)).key]
    handle = importlib.import_module(f"broker.apis.{snake_case(api.name)}").handle
    return await broker.call(handle, request, version)


def _ask_kafka(port: int, request: Any, version: int) -> Any:
    response = message_classes(BY_KEY[info_of(type(request)).key].name)[1]
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.settimeout(20)
        connection.sendall(encode_request(request, version, 1, "a-client"))
        frame = memoryview(_read(connection, int.from_bytes(_read(connection, 4), "big")))
    _, position = read_response_header(frame, response, version)
    return decode(response, version, frame, position)


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more_data = connection.recv(size - len(data))
        assert more_data, "Kafka closed the connection"
        data += more_data
    return data


def normal(value: Any) -> Any:
    """Turn a response into plain values, lists of named things into mappings by name."""
    if is_dataclass(value):
        found = {one.name: normal(getattr(value, one.name)) for one in fields(value)}
        if "topic_id" in found:
            found["topic_id"] = bool(found["topic_id"].strip(b"\x00"))
        for random_one in ("cluster_id", "brokers"):
            found.pop(random_one, None)
        return found
    if isinstance(value, list):
        return [normal(one) for one in value]
    return value


Difference = Callable[[Any, Any], list[str]]


def compare(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Return where two answers differ."""
    if isinstance(ours, dict):
        found = []
        for key in ours:
            if key == "error_message" and _explain_alike(ours, theirs):
                continue
            found += compare(ours[key], theirs[key], f"{where}.{key}")
        return found
    if isinstance(ours, list) and ours and isinstance(ours[0], dict):
        by_key = [sorted(one, key=_identity) for one in (ours, theirs)]
        mine, other = ([_identity(one) for one in side] for side in by_key)
        if mine != other:
            return [f"{where}: ours {mine}, Kafka's {other}"]
        found = []
        for one, two in zip(*by_key, strict=True):
            found += compare(one, two, f"{where}[{_identity(one)}]")
        return found
    return [] if ours == theirs else [f"{where}: ours {ours!r}, Kafka's {theirs!r}"]


def _identity(value: dict[str, Any]) -> str:
    keys = ("name", "partition", "partition_index", "resource_name", "source", "error_code")
    return " ".join(str(value[key]) for key in keys if key in value)


def _explain_alike(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """Tell whether two messages say the same of the same code."""
    mine, other = ours["error_message"], theirs["error_message"]
    if mine == other or mine == ErrorCode(ours["error_code"]).sentence:  # type: ignore[call-arg]
        return True
    return any(
        re.fullmatch(one, mine or "") and re.fullmatch(two, other or "")
        for one, two in KNOWN_DIFFERENCES
    )


assert inspect.isfunction(compare)
