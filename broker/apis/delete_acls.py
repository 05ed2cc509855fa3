"""DeleteAcls (31): remove access control entries.

Versions 1 to 3. v2: flexible. v3: users as resources.
"""

from __future__ import annotations

from odradek.broker.answers.acl_requests import changeable_acls, read_filter
from odradek.broker.context import RequestContext
from odradek.broker.errors import EXPLAINED, Explained, Refusal, code_of, message_of
from odradek.broker.security.acl_changes import Deleted
from odradek.broker.security.acls import AclFilter
from odradek.broker.services import Services
from odradek.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Remove the entries that match each filter; answer when the removal is durable."""
    filters = [read_filter(one) for one in paced(request.filters)]
    try:
        outcomes = await changeable_acls(services, context).delete(filters)
    except EXPLAINED as error:
        return _alike(filters, error)
    return DeleteAclsResponse(filter_results=[_result(outcome) for outcome in paced(outcomes)])


def _alike(filters: list[AclFilter], error: Explained) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_refused(error) for _ in paced(filters)])


def _refused(error: Explained) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=code_of(error), error_message=message_of(error), matching_acls=[]
    )


def _result(outcome: Deleted) -> DeleteAclsFilterResult:
    if isinstance(outcome, Refusal):
        return _refused(outcome)
    gone = [
        DeleteAclsMatchingAcl(
            error_code=0,
            error_message=None,
            resource_type=one.kind,
            resource_name=one.name,
            pattern_type=one.pattern,
            principal=one.principal,
            host=one.host,
            operation=one.operation,
            permission_type=one.permission,
        )
        for one in paced(outcome)
    ]
    return DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=gone)
