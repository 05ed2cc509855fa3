"""DescribeDelegationToken (41): the tokens that the client may see, secrets included (KIP-48).

Version notes: 2 is flexible; 3 adds the principal that requested each token (KIP-373).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, octets, string


@struct
class DescribeDelegationTokenOwner:
    """A principal whose tokens are wanted: tokens it owns, has requested or may renew."""

    principal_type: string
    principal_name: string


@message(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """Owners, or null for all."""

    owners: list[DescribeDelegationTokenOwner] | None


@struct
class DescribedDelegationTokenRenewer:
    """A principal that may renew the token, in addition to its owner."""

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
