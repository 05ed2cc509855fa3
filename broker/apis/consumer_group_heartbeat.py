"""ConsumerGroupHeartbeat: be a member of a consumer group (broker/groups/consumer)."""

from __future__ import annotations

from collections.abc import Awaitable

from broker.context import RequestContext
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    """Answer when what follows from a heartbeat is stored."""
    return context.broker.groups.consumer_heartbeat(request, context)
