"""Requests about groups that several scripts make alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol


def joining(group_id: str, member_id: str = "") -> JoinGroupRequest:
    """Join as a consumer: a new one, or one that has an id."""
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def altering(
    group_id: str, partitions: Mapping[str, Iterable[int]]
) -> AlterShareGroupOffsetsRequest:
    """Move a share group to the start of partitions, by their topics' names."""
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=0)
                for number in numbers
            ],
        )
        for name, numbers in partitions.items()
    ]
    return AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)
