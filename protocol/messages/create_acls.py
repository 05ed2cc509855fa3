"""CreateAcls (30): add access control entries. The codes are those of DescribeAcls.

Version notes: 1 adds pattern types; 2 is flexible; 3 knows users as resources.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, string


@struct
class AclCreation:
    """An entry to add."""

    resource_type: int8
    resource_name: string
    resource_pattern_type: int8 = field(default=3)
    principal: string
    host: string
    operation: int8
    permission_type: int8


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest:
    """Entries to add, each independently."""

    creations: list[AclCreation]


@struct
class AclCreationResult:
    """Whether an entry exists now."""

    error_code: int16 = field()
    error_message: string | None = field()


@message(key=30, versions="1-3", flexible="2+")
class CreateAclsResponse:
    """Results, in the order of the entries."""

    throttle_time_ms: int32 = field()
    results: list[AclCreationResult]
