"""DescribeGroups (15): state and members of classic groups.

Version notes: 3 adds authorized operations; 4 static membership (KIP-345); 5 is flexible; 6
answers GROUP_ID_NOT_FOUND for a group that does not exist (KIP-1043), older ones a Dead group.
"""

from __future__ import annotations

from odradek.protocol.messages import AUTHORIZED_OPERATIONS_OMITTED
from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, octets, string


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """Names the groups."""

    groups: list[string]
    include_authorized_operations: boolean = field("3+")


@struct
class DescribedGroupMember:
    """A member; metadata and assignment are filled in only while the group is Stable."""

    member_id: string
    group_instance_id: string | None = field("4+", default=None)
    client_id: string
    client_host: string
    member_metadata: octets
    member_assignment: octets


@struct
class DescribedGroup:
    """A group; protocol_data names the assignor while it is Stable; a Dead one has no members."""

    error_code: int16 = field()
    error_message: string | None = field("6+", default=None)
    group_id: string
    group_state: string
    protocol_type: string
    protocol_data: string
    members: list[DescribedGroupMember]
    authorized_operations: int32 = field("3+", default=AUTHORIZED_OPERATIONS_OMITTED)


@message(key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """The groups."""

    throttle_time_ms: int32 = field("1+")
    groups: list[DescribedGroup]
