"""AlterPartitionReassignments (45): move partitions to other brokers, or cancel that (KIP-455).

A partition has one replica. A broker of the same host has the same log directories; one of
another host gets a copy first (broker/reassignment).

Versions 0 to 1. Both are flexible. v1: a client can forbid another number of replicas (KIP-860).
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.errors import MetadataError, Refusal, code_of
from odradek.broker.loop.repeats import Repeats
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.broker.topics.plans import check_replicas
from odradek.broker.topics.topic import Topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from odradek.protocol.pacing import paced

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def handle(
    services: Services, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Store the moves that are possible, and refuse the others. Raises CloseConnection."""
    if not context.may_to_cluster(AclOperation.ALTER):
        return _denied(request)
    response = AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        # Kafka answers the default to a request without topics.
        allow_replication_factor_change=(
            request.allow_replication_factor_change or not request.topics
        ),
        error_code=0,
        error_message=None if request.topics else "",
        responses=[],
    )
    is_late = bool(request.topics) and request.timeout_ms <= 0
    if is_late:
        response.error_code = ErrorCode.REQUEST_TIMED_OUT
    repeats = Repeats()
    targets: dict[tuple[bytes, int], int] = {}
    for asked in paced(request.topics):
        topic = services.topics.get(asked.name)
        results: list[ReassignablePartitionResponse] = []
        for one in paced(asked.partitions):
            result = (
                _late(one) if is_late else _reassign(services, topic, asked, one, targets)
            )
            if results:  # each refusal repeats the topic's name
                repeats.add(len(result.error_message or ""))
            results.append(result)
        response.responses.append(ReassignableTopicResponse(name=asked.name, partitions=results))
    if targets and services.handovers is not None:
        try:
            await services.handovers.assign(targets)
        except MetadataError as error:
            response.error_code, response.error_message = code_of(error), str(error)
    return response


def _denied(request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    sentence = _DENIED.sentence
    return AlterPartitionReassignmentsResponse(
        error_code=_DENIED,
        error_message=sentence,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=one.partition_index,
                        error_code=_DENIED,
                        error_message=sentence,
                    )
                    for one in paced(topic.partitions)
                ],
            )
            for topic in paced(request.topics)
        ],
    )


def _late(asked: ReassignablePartition) -> ReassignablePartitionResponse:
    return _result(asked, Refusal(ErrorCode.REQUEST_TIMED_OUT))


def _reassign(
    services: Services,
    topic: Topic | None,
    of: ReassignableTopic,
    asked: ReassignablePartition,
    targets: dict[tuple[bytes, int], int],
) -> ReassignablePartitionResponse:
    """Check one move, and note it among the targets."""
    number = asked.partition_index
    try:
        if topic is None:
            message = f"Unable to find a topic named {of.name}."
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        if not 0 <= number < len(topic.partitions):
            message = f"Unable to find partition {of.name}:{number}."
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        leader = topic.record.leaders[number] if topic.record.leaders else None
        moves = leader is not None and leader.target != NO_LEADER
        if asked.replicas is None:
            if not moves:
                raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            targets[topic.topic_id, number] = NO_LEADER
        else:
            check_replicas(asked.replicas, services.brokers)
            if len(asked.replicas) > 1:
                message = "A partition has one replica: name one broker."
                raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            if leader is not None and asked.replicas[0] != leader.replica:
                targets[topic.topic_id, number] = asked.replicas[0]
            elif moves:
                targets[topic.topic_id, number] = NO_LEADER
    except Refusal as error:
        return _result(asked, error)
    return ReassignablePartitionResponse(
        partition_index=number, error_code=0, error_message=None
    )


def _result(asked: ReassignablePartition, error: Refusal) -> ReassignablePartitionResponse:
    # Kafka leaves out a sentence that only repeats the meaning of the code.
    message = None if str(error) == error.code.sentence else str(error)
    return ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_code=error.code, error_message=message
    )
