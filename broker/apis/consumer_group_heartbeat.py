"""ConsumerGroupHeartbeat (68): join, stay in and leave a consumer group (broker/groups/consumer).

Versions 0 to 1. Both are flexible. v1: regular expressions; a member makes its own id (KIP-1082).
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.broker.context import RequestContext
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.pacing import paced


def handle(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    """Answer when the changes that follow from a heartbeat are stored."""
    error = _problem(context, request)
    if error is not ErrorCode.NONE:
        return ConsumerGroupHeartbeatResponse(error_code=error)
    return services.groups.consumer_heartbeat(request, context)


def _problem(context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> ErrorCode:
    if not context.may(AclOperation.READ, ResourceKind.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    names = set(paced(request.subscribed_topic_names or ()))
    if len(context.permitted(AclOperation.DESCRIBE, ResourceKind.TOPIC, names)) < len(names):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE
