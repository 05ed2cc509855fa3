"""SaslHandshake (17): refused here; a login is the gate's (broker/network/sasl_gate.py)."""

from __future__ import annotations

from broker.context import RequestContext
from broker.services import Services
from protocol.errors import ErrorCode
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    services: Services, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Answer who needs no login, or has one that does not end: ILLEGAL_SASL_STATE (KafkaApis)."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
