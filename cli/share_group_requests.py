"""Requests about share groups, for their commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from odradek.cli.positions import Partition
from odradek.cli.refusals import Act, CommandError, check, did_you_mean
from odradek.cli.wire.client import Wire
from odradek.cli.wire.groups import list_groups
from odradek.protocol.errors import ErrorCode
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
from odradek.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from odradek.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

_UNKNOWN = -1


def describe_group(wire: Wire, name: str) -> tuple[int, DescribedGroup]:
    """Return the coordinator of a share group, and the group; raises CommandError without one."""
    act = Act(f"describe share group {name}", f"DESCRIBE on group {name}")
    node, answer = wire.ask_coordinator(
        name,
        ShareGroupDescribeRequest(group_ids=[name], include_authorized_operations=False),
        ShareGroupDescribeResponse,
        act,
        lambda one: [group.error_code for group in one.groups],
    )
    (found,) = answer.groups
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        known = [one.group for one in list_groups(wire, ["share"])]
        raise CommandError(f"there is no share group {name}{did_you_mean(name, known)}")
    check(found.error_code, act, found.error_message)
    return node, found


def find_offsets(wire: Wire, name: str) -> list[dict[str, Any]]:
    """Return the start offsets of a group; None stands for an offset that is not known yet."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
    act = Act(f"read the offsets of share group {name}", f"DESCRIBE on group {name}")
    _, answer = wire.ask_coordinator(
        name,
        DescribeShareGroupOffsetsRequest(groups=[asked]),
        DescribeShareGroupOffsetsResponse,
        act,
        lambda one: [group.error_code for group in one.groups],
    )
    (group,) = answer.groups
    check(group.error_code, act, group.error_message)
    rows = []
    for topic in sorted(group.topics, key=lambda one: one.topic_name):
        for one in sorted(topic.partitions, key=lambda one: one.partition_index):
            check(one.error_code, act, one.error_message)
            rows.append(
                {
                    "topic": topic.topic_name,
                    "partition": one.partition_index,
                    "start_offset": None if one.start_offset == _UNKNOWN else one.start_offset,
                    "lag": None if one.lag == _UNKNOWN else one.lag,
                }
            )
    return rows


def move_offsets(wire: Wire, name: str, offsets: Mapping[Partition, int]) -> None:
    """Move a group's start offsets; raises CommandError."""
    by_topic: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, []).append(
            AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
        )
    right = f"READ on group {name}, and on the topics"
    act = Act(f"move the offsets of share group {name}", right)
    _, answer = wire.ask_coordinator(
        name,
        AlterShareGroupOffsetsRequest(
            group_id=name,
            topics=[
                AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)
                for topic, partitions in by_topic.items()
            ],
        ),
        AlterShareGroupOffsetsResponse,
        act,
        lambda one: [one.error_code],
    )
    check(answer.error_code, act, answer.error_message)
    for answered in answer.responses:
        for one in answered.partitions:
            check(one.error_code, act, one.error_message)


def delete_offsets(wire: Wire, name: str, topics: Iterable[str]) -> None:
    """Delete a group's offsets of topics; raises CommandError."""
    act = Act(f"delete offsets of share group {name}", f"DELETE on group {name}, READ on topics")
    _, answer = wire.ask_coordinator(
        name,
        DeleteShareGroupOffsetsRequest(
            group_id=name,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics],
        ),
        DeleteShareGroupOffsetsResponse,
        act,
        lambda one: [one.error_code],
    )
    check(answer.error_code, act, answer.error_message)
    for one in answer.responses:
        check(one.error_code, act, one.error_message)
