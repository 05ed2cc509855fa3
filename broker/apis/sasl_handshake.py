"""SaslHandshake (17): refused here; the gate handles logins (broker/network/sasl_gate.py).

Versions 0 to 1. v1: the messages of the mechanism follow in SaslAuthenticate, in v0 without
headers.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    services: Services, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Answer a client without need of a login, or with a lasting one: ILLEGAL_SASL_STATE."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
