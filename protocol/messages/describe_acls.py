"""DescribeAcls (29): list access control entries.

Resource types: 1 any, 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7
user. Pattern types: 1 any, 2 match, 3 literal, 4 prefixed. Permission types: 1 any, 2 deny,
3 allow.

Version notes: 1 adds pattern types; 2 is flexible; 3 knows users as resources.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, string


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest:
    """The entries to list; null matches anything."""

    resource_type_filter: int8
    resource_name_filter: string | None
    pattern_type_filter: int8 = field(default=3)
    principal_filter: string | None
    host_filter: string | None
    operation: int8
    permission_type: int8


@struct
class AclDescription:
    """An entry, without its resource."""

    principal: string
    host: string
    operation: int8
    permission_type: int8


@struct
class DescribeAclsResource:
    """The entries of a resource, or of all names with a prefix."""

    resource_type: int8
    resource_name: string
    pattern_type: int8 = field(default=3)
    acls: list[AclDescription]


@message(key=29, versions="1-3", flexible="2+")
class DescribeAclsResponse:
    """The entries."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field()
    resources: list[DescribeAclsResource] = field()
