"""The partitions whose state each client can be asked for: interactive queries.

A member that has an endpoint is listed with the partitions of the topics that its tasks read.

Kafka's source: EndpointToPartitionsManager, StreamsGroup.buildEndpointToPartitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from odradek.broker.groups.modern.tables import in_number_order
from odradek.broker.groups.streams.member import StreamsMember
from odradek.broker.groups.streams.turn import StreamsTurn
from odradek.broker.orders.java import hash_order, utf16
from odradek.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    EndpointToPartitions,
    TopicPartition,
)


def listed(turn: StreamsTurn, updated: StreamsMember) -> list[EndpointToPartitions]:
    """List the endpoints of all members; that of the member at hand comes last."""
    others = (
        turn.group.members[name]
        for name in turn.group.members.in_order()
        if name != updated.member_id
    )
    return [
        _of(turn, member)
        for member in (*others, updated)
        if member.endpoint is not None
    ]


def _of(turn: StreamsTurn, member: StreamsMember) -> EndpointToPartitions:
    cache = turn.unlogged.endpoints
    found = cache.get(member.member_id)
    if found is None:
        host, port = member.endpoint or ("", 0)
        active = {name: list(some) for name, some in member.assigned.active.items()}
        standby = {name: in_number_order(x) for name, x in member.assigned.standby.items()}
        found = cache[member.member_id] = EndpointToPartitions(
            user_endpoint=Endpoint(host=host, port=port),
            active_partitions=list(_partitions(turn, active)),
            standby_partitions=list(_partitions(turn, standby)),
        )
    return found


def _partitions(
    turn: StreamsTurn, tasks: Mapping[str, Sequence[int]]
) -> Iterator[TopicPartition]:
    """Iterate over the partitions that tasks read.

    Nothing is known of a topology without numbers, nor of a missing topic. (Kafka then refuses
    the heartbeat with an unexpected error.)
    """
    configured = turn.unlogged.configured
    subtopologies = (configured.subtopologies if configured else None) or {}
    # Kafka's map has another order in each process.
    for name in sorted(tasks, key=utf16):
        subtopology = subtopologies.get(name)
        if subtopology is None:
            continue
        numbers = tasks[name]
        topics = hash_order((*subtopology.source_topics, *subtopology.repartition_sources))
        for topic in topics:
            count = turn.topics.partition_count(topic)
            if count:
                some = sorted(numbers)[:count] if count < len(numbers) else numbers
                yield TopicPartition(topic=topic, partitions=list(some))
