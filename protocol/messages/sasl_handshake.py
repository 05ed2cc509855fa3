"""SaslHandshake (17): choose the mechanism of a login."""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import int16, string


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest:
    """After version 0 the mechanism's messages are bare frames, else SaslAuthenticate requests."""

    mechanism: string


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    """The mechanisms are all enabled ones."""

    error_code: int16 = field()
    mechanisms: list[string] = field()
