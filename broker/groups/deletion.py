"""OffsetDelete: an administrator deletes offsets, while the group may have members.

In a consumer group with members, the offsets of topics that no member reads may be deleted. In a
group with members of another kind none may be, because the topics that they read are unknown.

Kafka's source: OffsetMetadataManager.deleteOffsets, ClassicGroup.validateOffsetDelete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from odradek.broker.groups.commits import Group
from odradek.broker.groups.records import OffsetRecord
from odradek.broker.groups.state import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.protocol.pacing import Pace, unpaced


def problem(request: OffsetDeleteRequest, group: Group | None) -> ErrorCode:
    """Return the error that forbids to delete any offset of a group, NONE without one."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None or group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not isinstance(group, ClassicGroup):
        return ErrorCode.NONE
    if group.state is GroupState.EMPTY or group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.NONE
    return ErrorCode.NON_EMPTY_GROUP


def plan(
    group: Group, request: OffsetDeleteRequest, answers: Sequence[OffsetDeleteResponseTopic]
) -> tuple[tuple[OffsetRecord, ...], OffsetDeleteResponse]:
    """Return the tombstones to write, and the answer to send when they are written.

    `answers` are the answers for topics whose offsets may be deleted; the group may be subscribed
    to some of these topics. A pending offset is deleted, too: its tombstone follows it in the log.
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
                present.discard(named)  # One tombstone is enough for a repeated partition.
                records.append(OffsetRecord(group.group_id, *named, None))
    return tuple(records), OffsetDeleteResponse(topics=topics)


def _subscribed(answer: OffsetDeleteResponseTopic) -> OffsetDeleteResponseTopic:
    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    partitions = [replace(one, error_code=error) for one in answer.partitions]
    return replace(answer, partitions=partitions)


def answered(
    topic: OffsetDeleteRequestTopic, error: ErrorCode, pace: Pace = unpaced
) -> OffsetDeleteResponseTopic:
    """Return the same answer for all partitions of a topic; handlers pass `paced`."""
    partitions = [
        OffsetDeleteResponsePartition(partition_index=p.partition_index, error_code=error)
        for p in pace(topic.partitions)
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)
