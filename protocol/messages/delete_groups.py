"""DeleteGroups (42): remove empty groups and their offsets.

Version notes: 2 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, string


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """Names the groups."""

    groups_names: list[string]


@struct
class DeletableGroupResult:
    """Whether one group is deleted."""

    group_id: string
    error_code: int16 = field()


@message(key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """Whether the groups are deleted."""

    throttle_time_ms: int32 = field()
    results: list[DeletableGroupResult]
