"""OffsetDelete: offsets that go because somebody asks, while the group may have members.

A consumer group with members gives up the offsets of topics that none of them reads; a group
with members of another kind gives up none, as nobody can tell what they read.

Kafka's source: OffsetMetadataManager.deleteOffsets, ClassicGroup.validateOffsetDelete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from broker.groups.commits import Group
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.records import OffsetRecord
from broker.groups.state import CONSUMER_PROTOCOL_TYPE, GroupState
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.pacing import Pace, unpaced


def problem(request: OffsetDeleteRequest, group: Group | None) -> ErrorCode:
    """Say why a group gives up none of its offsets; NONE when it may."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None or group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ConsumerGroup):
        return ErrorCode.NONE
    if group.state is GroupState.EMPTY or group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.NONE
    return ErrorCode.NON_EMPTY_GROUP


def plan(
    group: Group, request: OffsetDeleteRequest, answers: Sequence[OffsetDeleteResponseTopic]
) -> tuple[tuple[OffsetRecord, ...], OffsetDeleteResponse]:
    """List the tombstones to write, and the answer once they are: without any, at once.

    `answers` are those of topics whose offsets may go; the group may be subscribed to some. An
    offset on its way to the log goes too: its tombstone comes after it.
    """
    present = set(group.offsets.partitions())
    records: list[OffsetRecord] = []
    topics = []
    for topic, answer in zip(request.topics, answers, strict=True):
        if group.is_subscribed_to(topic.name):
            topics.append(_subscribed(answer))
            continue
        topics.append(answer)
        for wanted in topic.partitions:
            named = topic.name, wanted.partition_index
            if named in present:
                present.discard(named)  # of what is named twice one tombstone is enough
                records.append(OffsetRecord(group.group_id, *named, None))
    return tuple(records), OffsetDeleteResponse(topics=topics)


def _subscribed(answer: OffsetDeleteResponseTopic) -> OffsetDeleteResponseTopic:
    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    partitions = [replace(one, error_code=error) for one in answer.partitions]
    return replace(answer, partitions=partitions)


def answered(
    topic: OffsetDeleteRequestTopic, error: ErrorCode, pace: Pace = unpaced
) -> OffsetDeleteResponseTopic:
    """Answer alike for each of a topic's partitions; a handler has them paced."""
    partitions = [
        OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=error)
        for p in pace(topic.partitions)
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)
