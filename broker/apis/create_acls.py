"""CreateAcls (30): add access control entries.

Versions 1 to 3. v2: flexible. v3: users as resources.
"""

from __future__ import annotations

from odradek.broker.answers.acl_requests import changeable_acls, read_acl
from odradek.broker.context import RequestContext
from odradek.broker.errors import EXPLAINED, Explained, Refusal, code_of, message_of
from odradek.broker.security.acls import Acl
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    """Add the valid entries; answer when they are durable."""
    wanted = [read_acl(one) for one in paced(request.creations)]
    try:
        acls = changeable_acls(services, context)
    except Refusal as refusal:
        return _alike(wanted, refusal)
    if any(one.is_vague for one in paced(wanted)):
        # Kafka's own classes cannot hold such an entry, so Kafka answers this and no more.
        unknown = ErrorCode.UNKNOWN_SERVER_ERROR
        return CreateAclsResponse(
            results=[
                AclCreationResult(error_code=unknown, error_message=None) for _ in paced(wanted)
            ]
        )
    try:
        outcomes = await acls.create(wanted)
    except EXPLAINED as error:
        return _alike(wanted, error)
    return CreateAclsResponse(results=[_result(outcome) for outcome in paced(outcomes)])


def _alike(wanted: list[Acl], error: Explained) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_result(error) for _ in paced(wanted)])


def _result(error: Explained | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult()
    return AclCreationResult(error_code=code_of(error), error_message=message_of(error))
