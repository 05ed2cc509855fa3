"""The clients that may ask for delegation tokens at all (KafkaApis.allowTokenRequests)."""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.security.principals import ANONYMOUS

# Stands for a time when the client may not ask (DelegationTokenManager.ErrorTimestamp).
NO_TIME = -1


def may_ask(context: RequestContext) -> bool:
    """Return whether a client has authenticated, and not by a token.

    A token that could create tokens, or renew itself, would never expire. On a listener without
    authentication all clients are the same principal, which would have the tokens of all.
    """
    protocol = context.listener.protocol
    if context.principal.by_token or protocol == "PLAINTEXT":
        return False
    return protocol != "SSL" or context.principal != ANONYMOUS
