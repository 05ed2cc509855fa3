"""ExpireDelegationToken (40): end a token's life, now or later (KIP-48).

Version notes: 2 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import int16, int32, int64, octets


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    """The token by its hmac, and the time until it ends; a negative time ends it at once."""

    hmac: octets
    expiry_time_period_ms: int64


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """The time at which the token now expires."""

    error_code: int16 = field()
    expiry_timestamp_ms: int64 = field()
    throttle_time_ms: int32 = field()
