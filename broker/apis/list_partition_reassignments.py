"""ListPartitionReassignments (46): the partitions that move to other brokers (KIP-455).

A partition has one replica: it moves from the one broker to the other.

Version 0 only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.broker.context import RequestContext
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.broker.topics.topic import Topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from odradek.protocol.pacing import paced

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def handle(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return the moves that have not ended."""
    if not context.may_to_cluster(AclOperation.DESCRIBE):
        return ListPartitionReassignmentsResponse(
            error_code=_DENIED, error_message=_DENIED.sentence, topics=[]
        )
    if request.topics is None:
        wanted: list[tuple[Topic, Sequence[int]]] = [
            (topic, range(len(topic.partitions))) for topic in services.topics
        ]
    else:
        wanted = [
            (topic, asked.partition_indexes)
            for asked in paced(request.topics)
            if (topic := services.topics.get(asked.name)) is not None
        ]
    topics = []
    for topic, numbers in paced(wanted):
        moving = _moving(topic, numbers)
        if moving:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=moving))
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=0, error_message=None, topics=topics
    )


def _moving(topic: Topic, numbers: Iterable[int]) -> list[OngoingPartitionReassignment]:
    leaders = topic.record.leaders
    return [
        OngoingPartitionReassignment(
            partition_index=number,
            replicas=[leaders[number].target, leaders[number].replica],
            adding_replicas=[leaders[number].target],
            removing_replicas=[leaders[number].replica],
        )
        for number in paced(numbers)
        if 0 <= number < len(leaders) and leaders[number].target != NO_LEADER
    ]
