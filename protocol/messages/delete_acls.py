"""DeleteAcls (31): remove access control entries. The codes are those of DescribeAcls.

Version notes: 1 adds pattern types; 2 is flexible; 3 knows users as resources.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, string


@struct
class DeleteAclsFilter:
    """The entries to remove; null matches anything."""

    resource_type_filter: int8
    resource_name_filter: string | None
    pattern_type_filter: int8 = field(default=3)
    principal_filter: string | None
    host_filter: string | None
    operation: int8
    permission_type: int8


@message(key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest:
    """Filters, each of which removes the entries that it matches."""

    filters: list[DeleteAclsFilter]


@struct
class DeleteAclsMatchingAcl:
    """An entry that was removed."""

    error_code: int16 = field()
    error_message: string | None = field()
    resource_type: int8
    resource_name: string
    pattern_type: int8 = field(default=3)
    principal: string
    host: string
    operation: int8
    permission_type: int8


@struct
class DeleteAclsFilterResult:
    """The entries that a filter has removed."""

    error_code: int16 = field()
    error_message: string | None = field()
    matching_acls: list[DeleteAclsMatchingAcl] = field()


@message(key=31, versions="1-3", flexible="2+")
class DeleteAclsResponse:
    """Results, in the order of the filters."""

    throttle_time_ms: int32 = field()
    filter_results: list[DeleteAclsFilterResult]
