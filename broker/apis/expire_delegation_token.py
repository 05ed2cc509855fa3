"""ExpireDelegationToken (40): let a token expire, at once or after a period.

Kafka's sources: KafkaApis.handleExpireTokenRequest,
DelegationTokenControlManager.expireDelegationToken.

Versions 1 to 2. v2: flexible.
"""

from __future__ import annotations

from odradek.broker.answers.token_requests import NO_TIME, may_ask
from odradek.broker.context import RequestContext
from odradek.broker.errors import EXPLAINED, code_of
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


async def handle(
    services: Services, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Answer once the new expiry time is stored, or the token is removed."""
    if not may_ask(context):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=NO_TIME)
    tokens = services.security.tokens
    if tokens is None:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        return ExpireDelegationTokenResponse(error_code=code)
    period_ms = request.expiry_time_period_ms
    try:
        expires_ms = await tokens.expire(request.hmac, context.principal, period_ms)
    except EXPLAINED as error:
        return ExpireDelegationTokenResponse(error_code=code_of(error))
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)
