"""Reads what clients say of access control entries, and what they cannot say.

An element that a client itself calls unknown (0) is one that its library did not know: Kafka
takes the whole request for malformed then. Any other number that nobody knows is judged by
those who get it.
"""

from __future__ import annotations

from broker.context import CloseConnection
from broker.security.acls import (
    Acl,
    AclFilter,
    AclKind,
    AclOperation,
    PatternType,
    Permission,
)
from protocol.messages.create_acls import AclCreation
from protocol.messages.delete_acls import DeleteAclsFilter
from protocol.messages.describe_acls import DescribeAclsRequest


def read_acl(told: AclCreation) -> Acl:
    """Return the entry that a client wants. Raises CloseConnection."""
    _refuse_unknown(
        told.resource_type, told.resource_pattern_type, told.operation, told.permission_type
    )
    return Acl(
        AclKind(told.resource_type),
        told.resource_name,
        PatternType(told.resource_pattern_type),
        told.principal,
        told.host,
        AclOperation(told.operation),
        Permission(told.permission_type),
    )


def read_filter(told: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return which entries a client means. Raises CloseConnection."""
    _refuse_unknown(
        told.resource_type_filter, told.pattern_type_filter, told.operation, told.permission_type
    )
    return AclFilter(
        AclKind(told.resource_type_filter),
        told.resource_name_filter,
        PatternType(told.pattern_type_filter),
        told.principal_filter,
        told.host_filter,
        AclOperation(told.operation),
        Permission(told.permission_type),
    )


def _refuse_unknown(*codes: int) -> None:
    if 0 in codes:
        raise CloseConnection("the request about ACLs contains unknown elements")
