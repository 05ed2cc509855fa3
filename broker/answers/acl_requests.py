"""Reads what clients say of access control entries, and what they cannot say.

An element that a client itself calls unknown (0) is one that its library did not know: Kafka
takes the whole request for malformed then. Any other number that nobody knows is judged by
those who get it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.context import RequestContext
from broker.errors import CloseConnection, Refusal
from broker.security.acls import (
    Acl,
    AclFilter,
    AclKind,
    AclOperation,
    PatternType,
    Permission,
)
from broker.security.authorized_operations import Operation
from broker.services import Services
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreation
from protocol.messages.delete_acls import DeleteAclsFilter
from protocol.messages.describe_acls import DescribeAclsRequest

if TYPE_CHECKING:
    from broker.security.acl_changes import AclChanges


def changeable_acls(services: Services, context: RequestContext) -> AclChanges:
    """Return what a client may change. Raises Refusal when it may not, or there is nothing."""
    if not context.may_to_cluster(Operation.ALTER):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    acls = services.security.acls
    if acls is None:
        raise Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return acls


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
