"""DescribeAcls (29): list access control entries.

Versions 1 to 3. v2: flexible. v3: users as resources.
"""

from __future__ import annotations

from odradek.broker.answers.acl_requests import read_filter
from odradek.broker.context import RequestContext
from odradek.broker.security.acls import Acl, PatternType
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from odradek.protocol.pacing import paced


def handle(
    services: Services, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Return the entries that match the filter, grouped by resource."""
    which = read_filter(request)
    if not context.may_to_cluster(AclOperation.DESCRIBE):
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
    about: dict[tuple[ResourceKind, str, PatternType], list[Acl]] = {}
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
