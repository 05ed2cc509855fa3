"""SaslAuthenticate (36): a message of the mechanism that SaslHandshake chose."""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import int16, int64, octets, string


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """The client's next message."""

    auth_bytes: octets


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """The server's message; the last one has the lifetime of the login (0 for ever)."""

    error_code: int16 = field()
    error_message: string | None = field()
    auth_bytes: octets = field()
    session_lifetime_ms: int64 = field("1+", default=0)
