"""LeaveGroup (13): remove members from a classic group.

Version notes: 3 takes several members, static ones by instance id (KIP-345); 4 is flexible; 5
carries a reason (KIP-800).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, string


@struct
class MemberIdentity:
    """A member that leaves; the instance id alone may name a static one."""

    member_id: string = field("3+")
    group_instance_id: string | None = field("3+", default=None)
    reason: string | None = field("5+", default=None)


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """Names the one member that leaves, or from version 3 any number."""

    group_id: string
    member_id: string = field("0-2")
    members: list[MemberIdentity] = field("3+")


@struct
class MemberResponse:
    """Whether one member left."""

    member_id: string = field("3+")
    group_instance_id: string | None = field("3+")
    error_code: int16 = field("3+")


@message(key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """Whether each member left."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field()
    members: list[MemberResponse] = field("3+")
