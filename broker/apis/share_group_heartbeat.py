"""ShareGroupHeartbeat (76): join a share group, stay in it, get the assignment, and leave.

Version 1 only.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.errors import Refusal, message_of
from odradek.broker.groups.modern.subscriptions import check_names
from odradek.broker.groups.share import heartbeats
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.shares.replies import problem
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Answer when the changes that follow from a heartbeat are stored."""
    error = problem(services, context, request.group_id, request.member_id)
    if error is not ErrorCode.NONE:
        return ShareGroupHeartbeatResponse(error_code=error)
    names = set(paced(request.subscribed_topic_names or ()))
    if len(context.permitted(AclOperation.DESCRIBE, ResourceKind.TOPIC, names)) < len(names):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    message = heartbeats.problem(request)
    if message is not None:
        return heartbeats.refuse(ErrorCode.INVALID_REQUEST, message).response
    try:
        check_names(names, services.groups.topics)
    except Refusal as refusal:
        return heartbeats.refuse(refusal.code, message_of(refusal)).response
    return await services.share_groups.heartbeat(request, context)
