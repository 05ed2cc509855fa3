"""Who may ask for delegation tokens at all (KafkaApis.allowTokenRequests)."""

from __future__ import annotations

from broker.context import RequestContext
from broker.security.principals import ANONYMOUS

# Stands for a time in an answer to who may not ask (DelegationTokenManager.ErrorTimestamp).
NO_TIME = -1


def may_ask(context: RequestContext) -> bool:
    """Return whether a client has proved who it is, and not by a token.

    A token that could make tokens, or renew itself, would never end. On a listener without
    authentication everybody is the same principal, who would have the tokens of all.
    """
    protocol = context.listener.protocol
    if context.principal.by_token or protocol == "PLAINTEXT":
        return False
    return protocol != "SSL" or context.principal != ANONYMOUS
