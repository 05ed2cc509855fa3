"""SyncGroup (14): distribute a group's assignment from its leader to its members.

Version notes: 1 adds the throttle time; 3 static membership (KIP-345); 4 is flexible; 5 names
protocol type and protocol, which must be the group's (KIP-559).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, octets, string


@struct
class SyncGroupRequestAssignment:
    """One member's assignment, in the consumers' own format."""

    member_id: string
    assignment: octets


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Answered once the leader's request arrives; only the leader sends assignments."""

    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = field("3+", default=None)
    protocol_type: string | None = field("5+", default=None)
    protocol_name: string | None = field("5+", default=None)
    assignments: list[SyncGroupRequestAssignment]


@message(key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """This member's assignment."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field()
    protocol_type: string | None = field("5+", default=None)
    protocol_name: string | None = field("5+", default=None)
    assignment: octets
