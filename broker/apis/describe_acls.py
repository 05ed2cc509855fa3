"""DescribeAcls (29): list access control entries."""

from __future__ import annotations

from broker.answers.acl_requests import read_filter
from broker.context import RequestContext
from broker.security.acls import Acl, AclKind, PatternType
from broker.security.authorized_operations import Operation
from broker.services import Services
from protocol.errors import ErrorCode
from protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from protocol.pacing import paced


def handle(
    services: Services, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Return the entries that match the filter, grouped by resource."""
    which = read_filter(request)
    if not context.may_to_cluster(Operation.DESCRIBE):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeAclsResponse(
            error_code=refused, error_message=refused.sentence, resources=[]
        )
    acls = services.security.acls
    if acls is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message="No Authorizer is configured on the broker",
            resources=[],
        )
    about: dict[tuple[AclKind, str, PatternType], list[Acl]] = {}
    for acl in paced(list(acls.describe(which))):
        about.setdefault((acl.kind, acl.name, acl.pattern), []).append(acl)
    resources = [
        DescribeAclsResource(
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern,
            acls=[
                AclDescription(
                    principal=one.principal,
                    host=one.host,
                    operation=one.operation,
                    permission_type=one.permission,
                )
                for one in paced(found)
            ],
        )
        for (kind, name, pattern), found in paced(about.items())
    ]
    return DescribeAclsResponse(resources=resources)
