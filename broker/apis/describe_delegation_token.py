"""DescribeDelegationToken (41): the tokens that the client may see.

The owner of a token, its requester and its renewers see it; others need DESCRIBE on the token, or
DESCRIBE_TOKENS on its owner. Kafka's sources: KafkaApis.handleDescribeTokensRequest,
DelegationTokenManager.filterToken.

Versions 1 to 3. v2: flexible. v3: the requester of each token (KIP-373).
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.answers.token_requests import may_ask
from odradek.broker.context import RequestContext
from odradek.broker.orders.hash_map import concurrent_order
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.security.principals import Principal
from odradek.broker.security.tokens import Token
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from odradek.protocol.pacing import paced


def handle(
    services: Services, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Describe the requested tokens with their secrets."""
    if not may_ask(context):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return DescribeDelegationTokenResponse(error_code=code)
    tokens = services.security.tokens
    if tokens is None:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        return DescribeDelegationTokenResponse(error_code=code)
    owners = None
    if request.owners is not None:
        owners = {
            Principal(one.principal_type, one.principal_name) for one in paced(request.owners)
        }
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, tokens.hmac_of(token.token_id))
            for token in paced(_in_order(tokens))
            if (owners is None or token.concerns_any(owners))
            and _may_see(context, token)
        ]
    )


def _in_order(tokens: Iterable[Token]) -> list[Token]:
    """Return tokens in the order of Kafka's table, which is by their ids."""
    by_id = {token.token_id: token for token in tokens}
    return [by_id[token_id] for token_id in concurrent_order(by_id, paced)]


def _may_see(context: RequestContext, token: Token) -> bool:
    return (
        token.concerns(context.principal)
        or context.may(AclOperation.DESCRIBE, ResourceKind.DELEGATION_TOKEN, token.token_id)
        or context.may(AclOperation.DESCRIBE_TOKENS, ResourceKind.USER, str(token.owner))
    )


def _described(token: Token, secret: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=one.kind, principal_name=one.name)
            for one in token.renewers
        ],
    )
