"""Descriptions of streams groups.

Kafka's source: StreamsGroup.asDescribedGroup and the methods of the same kind in its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.broker.groups.streams.configured import Configured, InternalTopic
from odradek.broker.groups.streams.group import StreamsGroup
from odradek.broker.groups.streams.member import StreamsMember
from odradek.broker.groups.streams.tasks import Tasks, listed
from odradek.broker.groups.streams.topology import Topology
from odradek.broker.orders.java import hash_order, utf16
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import streams_group_describe as describe
from odradek.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TaskIds,
    TopicInfo,
)
from odradek.protocol.messages.streams_group_records import TopicInfo as StoredTopic


def described(group: StreamsGroup) -> DescribedGroup:
    """Describe a group."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=_topology(group),
        members=[
            _member(group.members[member_id], group.targets.get(member_id))
            for member_id in group.members.in_order()
        ],
    )


def refused(group_id: str, error: ErrorCode, message: str | None = None) -> DescribedGroup:
    """Return the description of a group that an error prevents."""
    return DescribedGroup(error_code=error, error_message=message, group_id=group_id)


def _topology(group: StreamsGroup) -> describe.Topology | None:
    configured = group.unlogged.configured
    if configured is not None and configured.is_ready:
        return describe.Topology(epoch=configured.epoch, subtopologies=_configured(configured))
    if group.topology is None:
        return None
    return describe.Topology(epoch=group.topology.epoch, subtopologies=_stored(group.topology))


def _configured(configured: Configured) -> list[Subtopology]:
    return [
        Subtopology(
            subtopology_id=name,
            source_topics=sorted(set(one.source_topics), key=utf16),
            repartition_sink_topics=sorted(set(one.repartition_sink_topics), key=utf16),
            repartition_source_topics=_internal_topics(one.repartition_sources),
            state_changelog_topics=_internal_topics(one.changelogs),
        )
        for name, one in (configured.subtopologies or {}).items()
    ]


def _internal_topics(topics: Mapping[str, InternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=name,
            partitions=topics[name].partition_count,
            replication_factor=topics[name].replication_factor,
            topic_configs=[
                KeyValue(key=key, value=topics[name].settings[key])
                for key in hash_order(topics[name].settings)
            ],
        )
        for name in sorted(topics, key=utf16)
    ]


def _stored(topology: Topology) -> list[Subtopology]:
    return [
        Subtopology(
            subtopology_id=name,
            source_topics=sorted(topology.subtopologies[name].source_topics, key=utf16),
            repartition_sink_topics=sorted(
                topology.subtopologies[name].repartition_sink_topics, key=utf16
            ),
            repartition_source_topics=_stored_topics(
                topology.subtopologies[name].repartition_source_topics
            ),
            state_changelog_topics=_stored_topics(
                topology.subtopologies[name].state_changelog_topics
            ),
        )
        for name in sorted(topology.subtopologies, key=utf16)
    ]


def _stored_topics(topics: Iterable[StoredTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=one.name,
            partitions=one.partitions,
            replication_factor=one.replication_factor,
            topic_configs=[
                KeyValue(key=config.key, value=config.value) for config in one.topic_configs
            ],
        )
        for one in sorted(topics, key=lambda one: utf16(one.name))
    ]


def _member(member: StreamsMember, target: Tasks | None) -> Member:
    endpoint = None
    if member.endpoint is not None:
        host, port = member.endpoint
        endpoint = Endpoint(host=host, port=port)
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=endpoint,
        client_tags=[
            KeyValue(key=key, value=member.tags[key]) for key in hash_order(member.tags)
        ],
        assignment=_assignment(member.assigned.tasks),
        target_assignment=_assignment(target or Tasks()),
    )


def _assignment(tasks: Tasks) -> Assignment:
    return Assignment(
        active_tasks=listed(TaskIds, tasks.active),
        standby_tasks=listed(TaskIds, tasks.standby),
        warmup_tasks=listed(TaskIds, tasks.warmup),
    )
