"""LeaveGroup: take members out of a classic group (broker/groups/sessions.py)."""

from __future__ import annotations

from collections.abc import Awaitable

from broker.context import RequestContext
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


def handle(
    context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    """Answer at once."""
    return context.broker.groups.leave(request, context)
