"""RenewDelegationToken (39): extend a token's life, within its maximum lifetime (KIP-48).

Version notes: 2 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import int16, int32, int64, octets


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    """The token by its hmac, and the extension; 0 or less means the broker's default."""

    hmac: octets
    renew_period_ms: int64


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    """The time at which the token now expires."""

    error_code: int16 = field()
    expiry_timestamp_ms: int64 = field()
    throttle_time_ms: int32 = field()
