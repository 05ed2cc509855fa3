"""SaslAuthenticate (36): refused here; the gate handles logins (broker/network/sasl_gate.py).

Versions 0 to 2. v1: the lifetime of the session (KIP-368). v2: flexible.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle(
    services: Services, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Answer a client that needs no login, or has logged in: ILLEGAL_SASL_STATE (KafkaApis)."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
