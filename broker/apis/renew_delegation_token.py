"""RenewDelegationToken (39): extend a token's life.

Kafka's sources: KafkaApis.handleRenewTokenRequest,
DelegationTokenControlManager.renewDelegationToken.

Versions 1 to 2. v2: flexible.
"""

from __future__ import annotations

from odradek.broker.answers.token_requests import NO_TIME, may_ask
from odradek.broker.context import RequestContext
from odradek.broker.errors import EXPLAINED, code_of
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


async def handle(
    services: Services, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Answer when the new expiry time is stored."""
    if not may_ask(context):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)
    tokens = services.security.tokens
    if tokens is None:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        return RenewDelegationTokenResponse(error_code=code)
    try:
        expires_ms = await tokens.renew(request.hmac, context.principal, request.renew_period_ms)
    except EXPLAINED as error:
        return RenewDelegationTokenResponse(error_code=code_of(error))
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
