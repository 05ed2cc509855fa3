"""JoinGroup: enter a classic group (broker/groups/joining.py)."""

from __future__ import annotations

from collections.abc import Awaitable

from broker.context import RequestContext
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse


def handle(
    context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Answer when the group's members have joined."""
    return context.broker.groups.join(request, context)
