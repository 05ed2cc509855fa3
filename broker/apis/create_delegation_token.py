"""CreateDelegationToken (38): create a token for the client, or for another principal.

Kafka's sources: KafkaApis.handleCreateTokenRequest,
DelegationTokenControlManager.createDelegationToken.

Versions 1 to 3. v2: flexible. v3: an owner other than the client (KIP-373).
"""

from __future__ import annotations

from odradek.broker.answers.token_requests import NO_TIME, may_ask
from odradek.broker.context import RequestContext
from odradek.broker.errors import EXPLAINED, code_of
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.security.principals import ANONYMOUS, USER, Principal
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Answer when the token is stored and clients can log in with it."""
    requester = owner = context.principal
    if request.owner_principal_name:
        if request.owner_principal_type is None:
            # Kafka fails unexpectedly on a principal without a type.
            return _refusal(ErrorCode.UNKNOWN_SERVER_ERROR, ANONYMOUS, ANONYMOUS)
        owner = Principal(request.owner_principal_type, request.owner_principal_name)
    if not may_ask(context):
        return _refusal(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, owner, requester)
    if owner != requester and not context.may(
        AclOperation.CREATE_TOKENS, ResourceKind.USER, str(owner)
    ):
        return _refusal(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester)
    renewers = [
        Principal(one.principal_type, one.principal_name) for one in paced(request.renewers)
    ]
    if any(one.kind != USER for one in paced(renewers)):
        return _refusal(ErrorCode.INVALID_PRINCIPAL_TYPE, owner, requester)
    tokens = services.security.tokens
    if tokens is None:
        return _refusal(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, owner, requester, 0)
    try:
        made = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except EXPLAINED as error:
        return _refusal(code_of(error), owner, requester, 0)
    return CreateDelegationTokenResponse(
        error_code=0,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=made.issued_ms,
        expiry_timestamp_ms=made.expires_ms,
        max_timestamp_ms=made.max_ms,
        token_id=made.token_id,
        hmac=tokens.hmac_of(made.token_id),
    )


def _refusal(
    code: ErrorCode, owner: Principal, requester: Principal, time_ms: int = NO_TIME
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=time_ms,
        expiry_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
        token_id="",
        hmac=b"",
    )
