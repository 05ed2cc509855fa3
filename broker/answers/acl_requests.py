"""Reads clients' access control entries and filters, and refuses unknown elements.

A client sends an element as unknown (0) when its library did not know it: then Kafka treats the
whole request as malformed. Any other unknown number is left to the functions that take the entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.broker.context import RequestContext
from odradek.broker.errors import CloseConnection, Refusal
from odradek.broker.security.acls import Acl, AclFilter, PatternType, Permission
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_acls import AclCreation
from odradek.protocol.messages.delete_acls import DeleteAclsFilter
from odradek.protocol.messages.describe_acls import DescribeAclsRequest

if TYPE_CHECKING:
    from odradek.broker.security.acl_changes import AclChanges


def changeable_acls(services: Services, context: RequestContext) -> AclChanges:
    """Return the ACLs for a change. Raises Refusal if the client may not, or there are none."""
    if not context.may_to_cluster(AclOperation.ALTER):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    acls = services.security.acls
    if acls is None:
        raise Refusal(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    return acls


def read_acl(creation: AclCreation) -> Acl:
    """Return the entry that a client sends. Raises CloseConnection."""
    _refuse_unknown(
        creation.resource_type,
        creation.resource_pattern_type,
        creation.operation,
        creation.permission_type,
    )
    return Acl(
        ResourceKind(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        AclOperation(creation.operation),
        Permission(creation.permission_type),
    )


def read_filter(sent: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the filter that a client sends. Raises CloseConnection."""
    _refuse_unknown(
        sent.resource_type_filter, sent.pattern_type_filter, sent.operation, sent.permission_type
    )
    return AclFilter(
        ResourceKind(sent.resource_type_filter),
        sent.resource_name_filter,
        PatternType(sent.pattern_type_filter),
        sent.principal_filter,
        sent.host_filter,
        AclOperation(sent.operation),
        Permission(sent.permission_type),
    )


def _refuse_unknown(*codes: int) -> None:
    if 0 in codes:
        raise CloseConnection("the request about ACLs contains unknown elements")
