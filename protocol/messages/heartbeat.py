"""Heartbeat (12): report that a member of a classic group is alive.

Version notes: 1 adds the throttle time; 3 static membership (KIP-345); 4 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import int16, int32, string


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """Restarts the member's session timeout."""

    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = field("3+", default=None)


@message(key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """REBALANCE_IN_PROGRESS asks the member to join again."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field()
