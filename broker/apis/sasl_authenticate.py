"""SaslAuthenticate (36): refused here; a login is the gate's (broker/network/sasl_gate.py)."""

from __future__ import annotations

from broker.context import RequestContext
from broker.services import Services
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(
    services: Services, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Answer who needs no login, or has one already: ILLEGAL_SASL_STATE (KafkaApis)."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
