"""Descriptions and lists of consumer groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.member import Member
from odradek.broker.groups.modern.topics import TopicView
from odradek.broker.orders.hash_map import HashMapKeys
from odradek.broker.orders.java import hash_set_order, uuid_hash
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    TopicPartitions,
)
from odradek.protocol.messages.consumer_group_describe import Member as DescribedMember
from odradek.protocol.messages.list_groups import ListedGroup

GROUP_TYPE = "consumer"
_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def described(group: ConsumerGroup, topics: TopicView, assignor: str) -> DescribedGroup:
    """Describe a group; `assignor` is its assignor if no member asks for one."""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.targets.epoch,
        assignor_name=group.preferred_assignor() or assignor,
        members=[
            _member(group, topics, group.members[member_id])
            for member_id in group.members.in_order()
        ],
    )


def refused(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    """Return the description of a group that an error prevents."""
    return DescribedGroup(error_code=error, error_message=message, group_id=group_id)


def listed(group: ConsumerGroup) -> ListedGroup:
    """Return a group's entry in a list."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=GROUP_TYPE,
        group_state=group.state.value,
        group_type=GROUP_TYPE,
    )


def _member(group: ConsumerGroup, topics: TopicView, member: Member) -> DescribedMember:
    targets = group.targets.of(member.member_id)
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=hash_set_order(member.topics),
        subscribed_topic_regex=member.expression,
        assignment=_assignment(topics, _still_read(member)),
        target_assignment=_assignment(topics, targets),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _still_read(member: Member) -> dict[bytes, list[int]]:
    """Return a member's partitions, then those it must still give up, in Kafka's order."""
    topic_ids = HashMapKeys(uuid_hash)
    read: dict[bytes, list[int]] = {}
    for held in (member.assigned, member.revoking):
        for topic_id, partitions in held.items():
            topic_ids.compute(topic_id)
            read.setdefault(topic_id, []).extend(partitions)
    return {topic_id: read[topic_id] for topic_id in topic_ids}


def _assignment(topics: TopicView, partitions: Mapping[bytes, Sequence[int]]) -> Assignment:
    """Return partitions with the names of their topics, without deleted topics."""
    named = ((topic_id, topics.name_of(topic_id), some) for topic_id, some in partitions.items())
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=list(some))
            for topic_id, name, some in named
            if name is not None
        ]
    )
