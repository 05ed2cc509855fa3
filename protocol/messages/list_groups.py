"""ListGroups (16): the groups that this broker coordinates.

Version notes: 1 adds the throttle time; 3 is flexible; 4 filters by state (KIP-518); 5 by type
(KIP-848).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, string


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """An empty filter lets everything through."""

    states_filter: list[string] = field("4+")
    types_filter: list[string] = field("5+")


@struct
class ListedGroup:
    """A group; a simple consumer's group has an empty protocol type."""

    group_id: string
    protocol_type: string
    group_state: string = field("4+")
    group_type: string = field("5+")


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field()
    groups: list[ListedGroup]
