"""ElectLeaders (43): make the preferred replica, or any, the leader of partitions (KIP-460).

Each partition has one replica. While its broker is alive it leads the partition, so that an
election is not needed; otherwise no broker can be elected.

Versions 0 to 2. v1: the type of the election; an error for all. v2: flexible.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.errors import Refusal
from odradek.broker.loop.repeats import Repeats
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.broker.topics.states import Partition, RemotePartition
from odradek.broker.topics.topic import Topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from odradek.protocol.pacing import paced

_PREFERRED, _UNCLEAN = 0, 1
_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def handle(
    services: Services, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Answer for each partition that it needs no election, or cannot have one."""
    if not context.may_to_cluster(AclOperation.ALTER):
        refused: Refusal | None = Refusal(_DENIED)
    else:
        refused = _refusal(request)
    topics = services.topics
    wanted = request.topic_partitions
    if refused is not None:
        return _response(
            [
                _results(one.topic, one.partitions, [refused] * len(one.partitions))
                for one in paced(wanted or ())
            ],
            refused.code,
        )
    kind = request.election_type
    if wanted is None:
        return _response([_elect_needed(topic, kind) for topic in paced(topics)])
    repeats = Repeats()
    return _response(
        [
            _results(
                one.topic, one.partitions, _elect_all(topics.get(one.topic), one, kind, repeats)
            )
            for one in paced(wanted)
        ]
    )


def _refusal(request: ElectLeadersRequest) -> Refusal | None:
    """Return the refusal of the whole request, or None."""
    if request.topic_partitions == []:
        return None
    if request.timeout_ms <= 0:
        return Refusal(ErrorCode.REQUEST_TIMED_OUT)
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        message = f"Unknown election type {request.election_type}"
        return Refusal(ErrorCode.INVALID_REQUEST, message)
    return None


def _elect_needed(topic: Topic, kind: int) -> ReplicaElectionResult:
    """Return the outcomes of the partitions without a leader; the others are left out."""
    numbers = [one.partition for one in topic.partitions if _has_no_leader(one)]
    refusals = [_elect(topic, topic.name, number, kind) for number in numbers]
    return _results(topic.name, numbers, refusals)


def _elect_all(
    topic: Topic | None, asked: TopicPartitions, kind: int, repeats: Repeats
) -> list[Refusal]:
    """Return each partition's outcome; most repeat the topic's name. Raises CloseConnection."""
    outcomes: list[Refusal] = []
    for number in paced(asked.partitions):
        outcome = _elect(topic, asked.topic, number, kind)
        if outcomes:
            repeats.add(len(str(outcome)))
        outcomes.append(outcome)
    return outcomes


def _has_no_leader(partition: Partition) -> bool:
    return isinstance(partition, RemotePartition) and partition.leader.node_id == NO_LEADER


def _elect(topic: Topic | None, name: str, partition: int, kind: int) -> Refusal:
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= partition < len(topic.partitions):
        message = f"No such partition as {name}-{partition}"
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
    if _has_no_leader(topic.partitions[partition]):
        is_preferred = kind == _PREFERRED
        return Refusal(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if is_preferred
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
    return Refusal(ErrorCode.ELECTION_NOT_NEEDED)


def _results(
    topic: str, partitions: list[int], outcomes: list[Refusal]
) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=topic,
        partition_result=[
            PartitionResult(
                partition_id=number, error_code=outcome.code, error_message=_sentence(outcome)
            )
            for number, outcome in paced(zip(partitions, outcomes, strict=True))
        ],
    )


def _sentence(outcome: Refusal) -> str | None:
    # Kafka has no sentence for a request that came too late.
    return None if outcome.code is ErrorCode.REQUEST_TIMED_OUT else str(outcome)


def _response(results: list[ReplicaElectionResult], code: int = 0) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time_ms=0, error_code=code, replica_election_results=results
    )
