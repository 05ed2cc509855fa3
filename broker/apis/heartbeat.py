"""Heartbeat (12): keep a member alive, and notify it of rebalances (broker/groups/sessions.py).

Versions 0 to 4. v1: the throttle time. v3: static members (KIP-345). v4: flexible.
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.broker.context import RequestContext
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    services: Services, context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    """Answer at once."""
    if not context.may(AclOperation.READ, ResourceKind.GROUP, request.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return services.groups.heartbeat(request, context)
