"""The offsets of groups: committed ones, and the start offsets of share groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from odradek.broker.topics.topic import Topic
from odradek.broker.web.console.asking import require
from odradek.broker.web.console.coordinators import Coordinator
from odradek.protocol.messages import describe_share_group_offsets as described
from odradek.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from odradek.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

ByPartition = Mapping[int, int]


class GroupOffsets(Protocol):
    """The offsets of a group in a topic."""

    async def of(self, topic: Topic) -> ByPartition:
        """Return the offsets by partition, without those that there are not."""

    async def move(self, topic: Topic, offsets: ByPartition) -> None:
        """Set the offsets. Raises Problem."""

    async def forget(self, topic: Topic, numbers: Iterable[int]) -> None:
        """Delete the offsets. Raises Problem."""


class CommittedOffsets:
    """The offsets that a group's consumers commit."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def of(self, topic: Topic) -> ByPartition:
        """Return the offsets by partition, without those that there are not."""
        coordinator, numbers = self._coordinator, list(range(len(topic.partitions)))
        asked = OffsetFetchRequestTopics(topic_id=topic.topic_id, partition_indexes=numbers)
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=coordinator.key, topics=[asked])],
            require_stable=False,
        )
        answer = await coordinator.ask(request, OffsetFetchResponse)
        group = answer.groups[0]
        require(group.error_code, None, f"group {coordinator.key}")
        return {
            one.partition_index: one.committed_offset
            for found in group.topics
            for one in found.partitions
            if not one.error_code and one.committed_offset >= 0
        }

    async def move(self, topic: Topic, offsets: ByPartition) -> None:
        """Commit offsets, as a consumer without a group's membership. Raises Problem."""
        coordinator = self._coordinator
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=one, committed_offset=offset, committed_metadata=""
            )
            for one, offset in offsets.items()
        ]
        asked = OffsetCommitRequestTopic(topic_id=topic.topic_id, partitions=partitions)
        request = OffsetCommitRequest(group_id=coordinator.key, member_id="", topics=[asked])
        answer = await coordinator.ask(request, OffsetCommitResponse)
        for one in answer.topics[0].partitions:
            require(one.error_code, None, f"{topic.name}-{one.partition_index}")

    async def forget(self, topic: Topic, numbers: Iterable[int]) -> None:
        """Delete committed offsets. Raises Problem."""
        coordinator = self._coordinator
        partitions = [OffsetDeleteRequestPartition(partition_index=one) for one in numbers]
        asked = OffsetDeleteRequestTopic(name=topic.name, partitions=partitions)
        request = OffsetDeleteRequest(group_id=coordinator.key, topics=[asked])
        answer = await coordinator.ask(request, OffsetDeleteResponse)
        require(answer.error_code, None, f"group {coordinator.key}")
        for one in answer.topics[0].partitions:
            require(one.error_code, None, f"{topic.name}-{one.partition_index}")


class ShareOffsets:
    """The offsets before which a share group has finished with all records."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def of(self, topic: Topic) -> ByPartition:
        """Return the offsets by partition, without those that there are not."""
        coordinator = self._coordinator
        asked = described.DescribeShareGroupOffsetsRequestTopic(
            topic_name=topic.name, partitions=list(range(len(topic.partitions)))
        )
        request = described.DescribeShareGroupOffsetsRequest(
            groups=[
                described.DescribeShareGroupOffsetsRequestGroup(
                    group_id=coordinator.key, topics=[asked]
                )
            ]
        )
        answer = await coordinator.ask(request, described.DescribeShareGroupOffsetsResponse)
        group = answer.groups[0]
        require(group.error_code, group.error_message)
        return {
            one.partition_index: one.start_offset
            for found in group.topics
            for one in found.partitions
            if not one.error_code and one.start_offset >= 0
        }

    async def move(self, topic: Topic, offsets: ByPartition) -> None:
        """Set the start offsets. Raises Problem."""
        coordinator = self._coordinator
        partitions = [
            AlterShareGroupOffsetsRequestPartition(partition_index=one, start_offset=offset)
            for one, offset in offsets.items()
        ]
        asked = AlterShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=partitions)
        request = AlterShareGroupOffsetsRequest(group_id=coordinator.key, topics=[asked])
        answer = await coordinator.ask(request, AlterShareGroupOffsetsResponse)
        require(answer.error_code, answer.error_message)
        for one in answer.responses[0].partitions:
            what = f"{topic.name}-{one.partition_index}"
            require(one.error_code, one.error_message, what)

    async def forget(self, topic: Topic, numbers: Iterable[int]) -> None:
        """Delete the state of all partitions of a topic. Raises Problem."""
        coordinator = self._coordinator
        request = DeleteShareGroupOffsetsRequest(
            group_id=coordinator.key,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic.name)],
        )
        answer = await coordinator.ask(request, DeleteShareGroupOffsetsResponse)
        require(answer.error_code, answer.error_message)
        for one in answer.responses:
            require(one.error_code, one.error_message, one.topic_name)
