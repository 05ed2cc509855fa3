"""Requests of consumers about a share group, which is none of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest
from tests.differential.group_requests import altering, joining
from tests.differential.world import World
from tests.support.requests import committing


def strangers(world: World) -> Iterator[tuple[Any, int]]:
    """Make them, each with a version to ask it in: the first makes the group, the last ends it."""
    group_id, topic = f"shared-{world.seed}", world.topics[0]
    yield altering(group_id, {topic: [0]}), 0
    for member_id in ("", "stranger"):
        for version in (2, 5, 9):
            yield joining(group_id, member_id), version
        yield _syncing(group_id, member_id), 5
        yield HeartbeatRequest(group_id=group_id, generation_id=1, member_id=member_id), 4
        yield LeaveGroupRequest(group_id=group_id, member_id=member_id), 1
        leaving = [MemberIdentity(member_id=member_id)]
        yield LeaveGroupRequest(group_id=group_id, members=leaving), 5
        for version in (2, 9):
            yield committing(group_id, {topic: {0: 1}}, member_id=member_id), version
        yield from _fetches(world, group_id, member_id, topic)
        # With epoch 0 this one only: a group that is not there is joined elsewhere.
        yield _heartbeat(group_id, member_id, 0, topic), 1
        for epoch in (1, -1, -2):
            for group in (group_id, "nobody"):
                yield _heartbeat(group, member_id, epoch, topic), 1
    deleted = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=deleted)]
    yield OffsetDeleteRequest(group_id=group_id, topics=topics), 0
    yield ConsumerGroupDescribeRequest(
        group_ids=[group_id], include_authorized_operations=True
    ), 1
    for version in (4, 6):
        yield DescribeGroupsRequest(
            groups=[group_id], include_authorized_operations=True
        ), version
    yield DeleteGroupsRequest(groups_names=[group_id]), 2


def _syncing(group_id: str, member_id: str) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group_id, generation_id=1, member_id=member_id, assignments=[]
    )


def _fetches(world: World, group_id: str, member_id: str, topic: str) -> Iterator[tuple[Any, int]]:
    parts = [0, 1]
    old = [OffsetFetchRequestTopic(name=topic, partition_indexes=parts)]
    for version, topics in ((1, old), (5, old), (7, None)):
        yield OffsetFetchRequest(group_id=group_id, topics=topics), version
    new = OffsetFetchRequestTopics(
        name=topic, topic_id=world.topic_ids[topic], partition_indexes=parts
    )
    for version, named in ((8, [new]), (9, None), (10, [new])):
        for epoch in (-1, 3):
            one = OffsetFetchRequestGroup(
                group_id=group_id, member_id=member_id, member_epoch=epoch, topics=named
            )
            yield OffsetFetchRequest(groups=[one], require_stable=True), version


def _heartbeat(
    group_id: str, member_id: str, epoch: int, topic: str
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        instance_id="instance" if epoch == -2 else None,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
