"""Builds Fetch responses: partitions by topic, and refusals of whole requests."""

from __future__ import annotations

from odradek.broker.fetch.plans import Planned, error_data
from odradek.broker.fetch.sessions import Session, WantedPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.pacing import paced_if_many
from odradek.protocol.wire import ZERO_UUID


def by_topic(answered: list[Planned]) -> list[FetchableTopicResponse]:
    """Group the answers for adjacent partitions of the same topic."""
    topics: list[FetchableTopicResponse] = []
    last: WantedPartition | None = None
    for planned in paced_if_many(answered):
        one = planned.wanted
        if last is None or one.topic_id != last.topic_id or (
            one.topic_id == ZERO_UUID and one.topic != last.topic
        ):
            partitions: list[PartitionData] = []
            topics.append(
                FetchableTopicResponse(
                    topic=one.topic or "", topic_id=one.topic_id, partitions=partitions
                )
            )
            last = one
        partitions.append(planned.data)
    return topics


def refuse_all(request: FetchRequest, by_id: bool) -> FetchResponse:
    """Refuse a request with an unknown isolation level by Kafka's error code, without a reason."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    answer = FetchResponse(error_code=code, session_id=request.session_id, responses=[])
    if not by_id:
        for topic in request.topics:
            partitions = [error_data(one.partition, code) for one in topic.partitions]
            answer.responses.append(
                FetchableTopicResponse(topic=topic.topic, partitions=partitions)
            )
    return answer


def refuse_overtaken(session: Session) -> FetchResponse:
    """Refuse a request that a later request of its session has overtaken."""
    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
    return FetchResponse(error_code=code, session_id=session.id, responses=[])
