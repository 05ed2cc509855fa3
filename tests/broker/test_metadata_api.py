"""Metadata, at every version: who serves what, and topics that asking creates."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.apis import metadata as metadata_api
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.wire import ZERO_UUID
from tests.broker.admin import (
    CLUSTER_ID,
    NODE_ID,
    Admin,
    admin,
    codes,
    create,
    versions,
)
from tests.support.requests import creatable

KEY = 3
OMITTED = -(2**31)
STRANGER = bytes(range(16))


async def metadata(broker: Admin, request: MetadataRequest, version: int = 13) -> MetadataResponse:
    response: MetadataResponse = await broker.call(metadata_api.handle, request, version)
    return response


def by_name(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=ZERO_UUID, name=name) for name in names],
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def everything(version: int) -> MetadataRequest:
    request = by_name()
    if version > 0:
        request.topics = None
    return request


@versions(KEY)
async def test_metadata_lists_brokers_and_topics(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path, {"broker.rack": "shelf-2"}) as broker:
        await create(broker, creatable("orders", 2), creatable("other"))
        response = await metadata(broker, everything(version), version)
        (node,) = response.brokers
        assert (node.node_id, node.host, node.port) == (NODE_ID, "broker.example", 19092)
        if version >= 1:
            assert (node.rack, response.controller_id) == ("shelf-2", NODE_ID)
        if version >= 2:
            assert response.cluster_id == CLUSTER_ID
        assert codes(response.topics) == {"orders": ErrorCode.NONE, "other": ErrorCode.NONE}
        orders = next(topic for topic in response.topics if topic.name == "orders")
        assert not orders.is_internal
        if version >= 10:
            found = broker.topics.get("orders")
            assert found is not None and orders.topic_id == found.topic_id
        assert [
            (one.partition_index, one.leader_id, one.replica_nodes, one.isr_nodes)
            for one in orders.partitions
        ] == [(0, NODE_ID, [NODE_ID], [NODE_ID]), (1, NODE_ID, [NODE_ID], [NODE_ID])]
        if version >= 7:
            assert {one.leader_epoch for one in orders.partitions} == {0}


@versions(KEY, first=1)
async def test_metadata_of_no_topics_names_none(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        assert (await metadata(broker, by_name(), version)).topics == []


@versions(KEY)
async def test_metadata_of_an_unknown_name(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path, {"auto.create.topics.enable": "false"}) as broker:
        request = by_name("nowhere", "not/legal", "__consumer_offsets", create=True)
        response = await metadata(broker, request, version)
        assert codes(response.topics) == {
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "not/legal": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        if version >= 1:
            assert [topic.is_internal for topic in response.topics] == [False, False, True]
        assert len(broker.topics) == 0


@versions(KEY)
async def test_metadata_creates_topics_when_both_sides_want_it(
    tmp_path: Path, version: int
) -> None:
    async with admin(tmp_path, {"num.partitions": "3"}) as broker:
        request = by_name("new", "not/legal", "new", create=True)
        response = await metadata(broker, request, version)
        assert codes(response.topics) == {
            "new": ErrorCode.NONE,
            "not/legal": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert len(response.topics[0].partitions) == 3
        again = await metadata(broker, by_name("new"), version)
        assert again.topics == response.topics[:1]


@versions(KEY, first=4)
async def test_metadata_creates_nothing_when_the_client_forbids_it(
    tmp_path: Path, version: int
) -> None:
    async with admin(tmp_path) as broker:
        response = await metadata(broker, by_name("new", create=False), version)
        assert codes(response.topics) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert len(broker.topics) == 0


async def test_metadata_creates_internal_topics_with_their_own_settings(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "2"}
    async with admin(tmp_path, settings) as broker:
        response = await metadata(broker, by_name("__consumer_offsets", create=True))
        (topic,) = response.topics
        assert topic.is_internal and len(topic.partitions) == 2
        found = broker.topics.get("__consumer_offsets")
        assert found is not None and found.config.compact


async def test_metadata_says_why_a_topic_could_not_be_created(tmp_path: Path) -> None:
    async with admin(tmp_path, {"default.replication.factor": "3"}) as broker:
        await create(broker, creatable("a.b"))
        response = await metadata(broker, by_name("a_b", "new", create=True))
        assert codes(response.topics) == {
            "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "new": ErrorCode.INVALID_REPLICATION_FACTOR,
        }


@versions(KEY, first=12)
async def test_metadata_by_id(tmp_path: Path, version: int) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"), creatable("other"))
        known = broker.topics.get("orders")
        assert known is not None
        request = by_name("other", create=True)  # names do not count beside ids
        assert request.topics is not None
        for topic_id in (known.topic_id, STRANGER, STRANGER):
            request.topics.append(MetadataRequestTopic(topic_id=topic_id, name=None))
        response = await metadata(broker, request, version)
        assert [(one.name, one.topic_id, one.error_code) for one in response.topics] == [
            (None, STRANGER, ErrorCode.UNKNOWN_TOPIC_ID),
            ("orders", known.topic_id, ErrorCode.NONE),
        ]


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("named", [True, False])
async def test_metadata_refuses_ids_in_versions_that_only_have_the_field(
    tmp_path: Path, version: int, named: bool
) -> None:
    async with admin(tmp_path) as broker:
        request = by_name()
        name, topic_id = ("orders", STRANGER) if named else (None, ZERO_UUID)
        request.topics = [MetadataRequestTopic(topic_id=topic_id, name=name)]
        response = await metadata(broker, request, version)
        assert codes(response.topics) == {name or "": ErrorCode.INVALID_REQUEST}
        # Nothing else is told, as in Kafka.
        assert not response.brokers
        assert (response.cluster_id, response.controller_id) == (None, -1)


@versions(KEY, first=8)
@pytest.mark.parametrize("asked", [True, False])
async def test_metadata_lists_the_rights_of_the_client_when_asked(
    tmp_path: Path, version: int, asked: bool
) -> None:
    async with admin(tmp_path) as broker:
        await create(broker, creatable("orders"))
        request = by_name("orders")
        request.include_topic_authorized_operations = asked
        request.include_cluster_authorized_operations = asked and version <= 10
        response = await metadata(broker, request, version)
        # Read, write, create, delete, alter, describe, describe and alter configs.
        topic_operations = sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
        assert response.topics[0].topic_authorized_operations == (
            topic_operations if asked else OMITTED
        )
        if version <= 10:
            # Create, alter, describe, cluster action, both configs, idempotent write.
            cluster_operations = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
            assert response.cluster_authorized_operations == (
                cluster_operations if asked else OMITTED
            )
