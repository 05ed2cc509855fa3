"""ApiVersions, DescribeCluster, InitProducerId, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.broker.api_table import API_VERSIONS
from odradek.broker.apis import (
    api_versions,
    delete_records,
    describe_cluster,
    init_producer_id,
    offset_for_leader_epoch,
)
from odradek.broker.errors import MetadataError
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.storage.log import Log
from tests.broker.admin import (
    CLUSTER_ID,
    NODE_ID,
    Admin,
    admin,
    append,
    create,
    versions,
)
from tests.support.requests import creatable

DELETE_RECORDS, API_VERSIONS_KEY, INIT_PRODUCER_ID = 21, 18, 22
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CLUSTER = 23, 60
OMITTED = -(2**31)


# --- ApiVersions ------------------------------------------------------------------------------


def who(name: str = "a-client", version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@versions(API_VERSIONS_KEY)
async def test_api_versions_lists_the_table_of_apis(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        response = await broker.call(api_versions.handle, who(), version)
        assert response.error_code == ErrorCode.NONE
        told = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
        telemetry = {71, 72}  # announced when there is a subscription
        assert told == {key: API_VERSIONS[key] for key in API_VERSIONS.keys() - telemetry}


LEGIBLE = [("apache-kafka-java", "4.3.1"), ("x", "0"), ("a.b-c", "1-rc.2")]
ILLEGIBLE = [
    ("", "1.0"),
    ("a-client", ""),
    ("-client", "1.0"),
    ("a-client", "1.0-"),
    ("a client", "1.0"),
    ("a-client\n", "1.0"),
    ("klient-ä", "1.0"),
]


@versions(API_VERSIONS_KEY, first=3)
async def test_a_client_has_to_name_itself_legibly(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        for name, number in LEGIBLE + ILLEGIBLE:
            response = await broker.call(api_versions.handle, who(name, number), version)
            refused = (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])
            assert refused == ((name, number) in ILLEGIBLE), (name, number)


def test_an_unknown_version_is_answered_in_version_0_with_the_versions_that_work() -> None:
    response = decode(ApiVersionsResponse, 0, encode(api_versions.unsupported_version(), 0))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    (own,) = response.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (18, *API_VERSIONS[18])


# --- DescribeCluster --------------------------------------------------------------------------


@versions(DESCRIBE_CLUSTER)
@pytest.mark.parametrize("asked", [True, False])
async def test_the_cluster_is_this_broker(tmp_path: Path, version: int, asked: bool) -> None:
    async with admin(tmp_path, {"broker.rack": "shelf-2"}) as broker:
        request = DescribeClusterRequest(include_cluster_authorized_operations=asked)
        response = await broker.call(describe_cluster.handle, request, version)
        assert (response.error_code, response.cluster_id) == (ErrorCode.NONE, CLUSTER_ID)
        assert response.controller_id == NODE_ID
        (node,) = response.brokers
        assert (node.broker_id, node.host, node.port, node.rack) == (
            NODE_ID,
            "broker.example",
            19092,
            "shelf-2",
        )
        operations = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
        assert response.cluster_authorized_operations == (operations if asked else OMITTED)


@versions(DESCRIBE_CLUSTER, first=1)
@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
async def test_a_broker_is_no_other_kind_of_node(
    tmp_path: Path, version: int, endpoint_type: int, code: ErrorCode
) -> None:
    async with admin(tmp_path) as broker:
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=endpoint_type
        )
        response = await broker.call(describe_cluster.handle, request, version)
        assert response.error_code == code
        assert response.error_message


# --- InitProducerId ---------------------------------------------------------------------------


async def init(
    broker: Admin,
    *,
    transactional_id: str | None = None,
    producer: tuple[int, int] = (-1, -1),
    version: int = 5,
) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )
    response = await broker.call(init_producer_id.handle, request, version)
    return response.error_code, response.producer_id, response.producer_epoch


@versions(INIT_PRODUCER_ID)
async def test_every_producer_gets_an_id_of_its_own(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        answers = await asyncio.gather(*(init(broker, version=version) for _ in range(1005)))
    async with admin(tmp_path) as broker:
        answers += [await init(broker, version=version)]
    assert {(code, epoch) for code, _, epoch in answers} == {(ErrorCode.NONE, 0)}
    assert len({producer_id for _, producer_id, _ in answers}) == len(answers)


@versions(INIT_PRODUCER_ID, first=3)
async def test_a_producer_that_has_an_id_gets_another(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        _, first, _ = await init(broker, version=version)
        code, second, epoch = await init(broker, producer=(first, 4), version=version)
        assert (code, epoch) == (ErrorCode.NONE, 0)
        assert second != first


@pytest.mark.parametrize("producer", [(7, -1), (-1, 0)])
async def test_half_a_producer_is_refused(tmp_path: Path, producer: tuple[int, int]) -> None:
    async with admin(tmp_path) as broker:
        assert await init(broker, producer=producer) == (ErrorCode.INVALID_REQUEST, -1, -1)


async def test_a_broker_that_cannot_write_hands_out_no_producer_ids(tmp_path: Path) -> None:
    class Full:
        def __init__(self, store: Any) -> None:
            self.load = store.load

        async def allocate_producer_ids(self, _: int) -> int:
            raise MetadataError("odradek.db: database or disk is full")

    async with admin(tmp_path, wrap=cast("Any", Full)) as broker:
        assert await init(broker) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)


# --- OffsetForLeaderEpoch ---------------------------------------------------------------------


async def epoch_end(
    broker: Admin, partition: int, epoch: int, *, current: int = -1, version: int = 4
) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="orders", partitions=[asked])]
    )
    response = await broker.call(offset_for_leader_epoch.handle, request, version)
    (topic,) = response.topics
    (found,) = topic.partitions
    assert (topic.topic, found.partition) == ("orders", partition)
    return found.error_code, found.leader_epoch, found.end_offset


@versions(OFFSET_FOR_LEADER_EPOCH)
async def test_the_epoch_in_force_ends_where_the_log_does(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        append(log_of(broker), "a", "b")
        assert await epoch_end(broker, 0, 0, version=version) == (ErrorCode.NONE, 0, 2)
        assert await epoch_end(broker, 0, 9, version=version) == (ErrorCode.NONE, -1, -1)
        for partition in (1, -1):
            unknown = await epoch_end(broker, partition, 0, version=version)
            assert unknown == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


@pytest.mark.parametrize(
    ("current", "code"),
    [(0, ErrorCode.NONE), (-1, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
async def test_a_reader_with_another_epoch_in_mind_is_fenced(
    tmp_path: Path, current: int, code: ErrorCode
) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        found, *_ = await epoch_end(broker, 0, 0, current=current)
        assert found == code


# --- DeleteRecords ----------------------------------------------------------------------------


def log_of(broker: Admin, name: str = "orders") -> Log:
    topic = broker.topics.get(name)
    assert topic is not None
    return topic.partitions[0]


async def cut(
    broker: Admin, name: str, offset: int, *, partition: int = 0, version: int = 2
) -> tuple[int, int]:
    asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=[asked])], timeout_ms=1000
    )
    response = await broker.call(delete_records.handle, request, version)
    (topic,) = response.topics
    (result,) = topic.partitions
    assert (topic.name, result.partition_index) == (name, partition)
    return result.error_code, result.low_watermark


@versions(DELETE_RECORDS)
async def test_records_before_an_offset_are_deleted(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        append(log_of(broker), "a", "b", "c")
        for offset, low_watermark in ((1, 1), (0, 1), (2, 2), (-1, 3), (3, 3)):
            answer = await cut(broker, "orders", offset, version=version)
            assert answer == (ErrorCode.NONE, low_watermark)
    async with admin(tmp_path) as broker:
        assert log_of(broker).log_start_offset == 3


async def test_of_a_partition_that_is_named_twice_the_last_offset_counts(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        append(log_of(broker), "a", "b", "c")
        topics = [
            DeleteRecordsTopic(
                name="orders",
                partitions=[
                    DeleteRecordsPartition(partition_index=0, offset=one) for one in offsets
                ],
            )
            for offsets in ((3, 9), (2,))
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
        (topic,) = (await broker.call(delete_records.handle, request, 2)).topics
        (result,) = topic.partitions
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 2)


@pytest.mark.parametrize(
    ("name", "partition", "offset", "code"),
    [
        ("orders", 0, 4, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("orders", 0, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("orders", 1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", 0, 1, ErrorCode.POLICY_VIOLATION),
        ("__consumer_offsets", 0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("both", 0, 1, ErrorCode.NONE),
        ("kept", 0, 1, ErrorCode.NONE),
    ],
)
async def test_records_that_have_to_stay_are_not_deleted(
    tmp_path: Path, name: str, partition: int, offset: int, code: ErrorCode
) -> None:
    async with admin(tmp_path, {"offsets.topic.num.partitions": "1"}) as broker:
        policies = {"orders": "delete", "compacted": "compact", "both": "compact,delete"}
        policies["kept"] = ""  # an empty list of policies keeps everything by itself
        for topic, policy in policies.items():
            await create(broker, creatable(topic, configs={"cleanup.policy": policy}))
            append(log_of(broker, topic), "a", "b", "c")
        await broker.topics.internal("__consumer_offsets")
        found, low_watermark = await cut(broker, name, offset, partition=partition)
        assert found == code
        assert low_watermark == (-1 if code else offset)
