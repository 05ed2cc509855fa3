"""Heartbeat: show that a member lives, and learn of rebalances (broker/groups/sessions.py)."""

from __future__ import annotations

from collections.abc import Awaitable

from broker.context import RequestContext
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    """Answer at once."""
    return context.broker.groups.heartbeat(request, context)
