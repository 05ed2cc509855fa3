"""DescribeDelegationToken (41): the tokens that the client may see, secrets included (KIP-48).

Version notes: 2 is flexible; 3 tells who asked for each token (KIP-373).
"""

from __future__ import annotations

from protocol.schema import field, message, struct
from protocol.wire import int16, int32, int64, octets, string


@struct
class DescribeDelegationTokenOwner:
    """A principal whose tokens are wanted: those it owns, asked for or may renew."""

    principal_type: string
    principal_name: string


@message(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """Owners, or null for all."""

    owners: list[DescribeDelegationTokenOwner] | None


@struct
class DescribedDelegationTokenRenewer:
    """A principal who may renew the token, besides its owner."""

    principal_type: string
    principal_name: string


@struct
class DescribedDelegationToken:
    """A token."""

    principal_type: string = field()
    principal_name: string
    token_requester_principal_type: string = field("3+")
    token_requester_principal_name: string = field("3+")
    issue_timestamp: int64
    expiry_timestamp: int64
    max_timestamp: int64
    token_id: string
    hmac: octets
    renewers: list[DescribedDelegationTokenRenewer]


@message(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """The tokens."""

    error_code: int16 = field()
    tokens: list[DescribedDelegationToken] = field()
    throttle_time_ms: int32 = field()
