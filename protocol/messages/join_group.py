"""JoinGroup (11): join a classic group, or stay in it while it rebalances.

Version notes: 1 adds the rebalance timeout (before it, the session timeout serves as both); from
4 on a new member asks twice, the second time with the id it got (KIP-394); 5 adds static
membership (KIP-345); 6 is flexible; 7 names the protocol type (KIP-559); 8 carries a reason
(KIP-800); 9 lets the leader skip the assignment (KIP-814).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, octets, string


@struct
class JoinGroupRequestProtocol:
    """An assignor that the member knows, and its subscription for it."""

    name: string
    metadata: octets


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """Answered when every member has joined or the rebalance timeout has passed."""

    group_id: string
    session_timeout_ms: int32
    rebalance_timeout_ms: int32 = field("1+", default=-1)
    member_id: string
    group_instance_id: string | None = field("5+", default=None)
    protocol_type: string
    protocols: list[JoinGroupRequestProtocol]
    reason: string | None = field("8+", default=None)


@struct
class JoinGroupResponseMember:
    """A member, as the leader needs it to assign partitions."""

    member_id: string
    group_instance_id: string | None = field("5+", default=None)
    metadata: octets


@message(key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The new generation; only the leader gets the list of members."""

    throttle_time_ms: int32 = field("2+")
    error_code: int16 = field()
    generation_id: int32 = field(default=-1)
    protocol_type: string | None = field("7+", default=None)
    protocol_name: string | None = field(nullable="7+")
    leader: string
    skip_assignment: boolean = field("9+")
    member_id: string
    members: list[JoinGroupResponseMember]
