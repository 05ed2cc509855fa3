"""ShareGroupHeartbeat (76): join a share group, stay in it, learn the assignment, and leave."""

from __future__ import annotations

from broker.authorized_operations import Operation
from broker.context import RequestContext
from broker.groups.share import heartbeats
from broker.security.authorization import ResourceKind
from broker.shares.replies import problem
from protocol.errors import ErrorCode
from protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


async def handle(
    context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Answer when what follows from a heartbeat is stored."""
    error = problem(context, request.group_id, request.member_id)
    if error is not ErrorCode.NONE:
        return ShareGroupHeartbeatResponse(error_code=error)
    names = set(request.subscribed_topic_names or ())
    if not names <= context.permitted(Operation.DESCRIBE, ResourceKind.TOPIC, names):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    message = heartbeats.problem(request)
    if message is not None:
        return heartbeats.refuse(ErrorCode.INVALID_REQUEST, message).response
    return await context.broker.share_groups.heartbeat(request, context)
