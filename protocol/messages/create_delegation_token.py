"""CreateDelegationToken (38): create a secret that stands for a principal for a while (KIP-48).

Version notes: 2 is flexible; 3 lets a principal request a token for another one (KIP-373).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, octets, string


@struct
class CreatableRenewers:
    """A principal that may renew the token, in addition to its owner."""

    principal_type: string
    principal_name: string


@message(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    """The token's owner, by default (null or "") the requester, and its longest lifetime."""

    owner_principal_type: string | None = field("3+")
    owner_principal_name: string | None = field("3+")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: int64


@message(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token: its id is the user's name and its hmac, in base64, the password."""

    error_code: int16 = field()
    principal_type: string = field()
    principal_name: string = field()
    token_requester_principal_type: string = field("3+")
    token_requester_principal_name: string = field("3+")
    issue_timestamp_ms: int64 = field()
    expiry_timestamp_ms: int64 = field()
    max_timestamp_ms: int64 = field()
    token_id: string = field()
    hmac: octets = field()
    throttle_time_ms: int32 = field()
