"""LeaveGroup (13): remove members from a classic group (broker/groups/sessions.py).

Versions 0 to 5. v1: the throttle time. v3: several members, static ones by instance (KIP-345). v4:
flexible. v5: a reason (KIP-800).
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.broker.context import RequestContext
from odradek.broker.groups.parts import leave_in_parts
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


def handle(
    services: Services, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    """Answer at once."""
    if not context.may(AclOperation.READ, ResourceKind.GROUP, request.group_id):
        return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, members=[])
    return leave_in_parts(request, lambda part: services.groups.leave(part, context))
