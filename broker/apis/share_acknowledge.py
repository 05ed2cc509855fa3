"""ShareAcknowledge (79): acknowledge records outside of a fetch.

The request takes its turn in the member's share session. With epoch -1 it is the last one, and
after its answer other members can acquire the records that the member still held.

Versions 1 to 2. Both are flexible. v2: acknowledgements that renew a lock; the duration of a lock
(KIP-1222).
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.fetch.sessions import FIRST_EPOCH
from odradek.broker.services import Services
from odradek.broker.shares.replies import acknowledge_all, code_and_message, leader_of, problem
from odradek.broker.shares.sessions import FINAL_EPOCH, MemberKey, TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Answer when all valid acknowledgements are stored."""
    error = problem(services, context, request.group_id, request.member_id)
    if error is not ErrorCode.NONE:
        return ShareAcknowledgeResponse(error_code=error)
    group_id, member_id = request.group_id or "", request.member_id or ""
    member = MemberKey(group_id, member_id)
    error = _take_turn(services, member, request.share_session_epoch)
    if error is not ErrorCode.NONE:
        return ShareAcknowledgeResponse(error_code=error)
    given = {
        TopicPartition(topic.topic_id, one.partition_index): one.acknowledgement_batches
        for topic in paced(request.topics)
        for one in paced(topic.partitions)
    }
    acknowledging = acknowledge_all(
        services, context, group_id, member_id, given, is_renewal=request.is_renew_ack
    )
    results = await acknowledging.results()
    shares = services.shares
    settings = shares.settings.of(group_id)
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=settings.partition.lock_duration_ms
    )
    topics: dict[bytes, list[PartitionData]] = {}
    for partition, failure in paced(results.items()):
        code, message = code_and_message(failure)
        data = PartitionData(
            partition_index=partition.partition, error_code=code, error_message=message
        )
        leader = leader_of(services, partition, code)
        if leader is not None:
            data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
            host, port = context.advertised()
            response.node_endpoints = [NodeEndpoint(node_id=leader[0], host=host, port=port)]
        topics.setdefault(partition.topic_id, []).append(data)
    response.responses = [
        ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in paced(topics.items())
    ]
    if request.share_session_epoch == FINAL_EPOCH:
        shares.end_session(member)
    return response


def _take_turn(services: Services, member: MemberKey, epoch: int) -> ErrorCode:
    sessions = services.shares.sessions
    if epoch == FIRST_EPOCH:
        return ErrorCode.INVALID_SHARE_SESSION_EPOCH
    if epoch == FINAL_EPOCH:
        known = sessions.get(member) is not None
        return ErrorCode.NONE if known else ErrorCode.SHARE_SESSION_NOT_FOUND
    session = sessions.resume(member, epoch)
    return session if isinstance(session, ErrorCode) else ErrorCode.NONE
