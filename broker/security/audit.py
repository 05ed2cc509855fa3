"""The audit log: who was allowed or denied what, in the words of Kafka's authorizer.

    Principal = User:ann is Denied operation = READ from host = 127.0.0.1 on resource =
    Topic:LITERAL:prices for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny

What is denied is told at INFO, what is allowed at DEBUG. What nobody asked for, such as the
entries that are left out of a list, is told at TRACE.
"""

from __future__ import annotations

import logging

from broker.apis import BY_KEY
from broker.authorized_operations import Operation
from broker.security.acl_index import Rule
from broker.security.authorization import Requester, ResourceKind

# Kafka's name for it, so that what sends it elsewhere, or sets its level, does so here.
LOGGER = "kafka.authorizer.logger"
_TRACE = 5  # as in broker/loggers.py

logger = logging.getLogger(LOGGER)


def note(
    requester: Requester,
    operation: Operation,
    kind: ResourceKind,
    name: str,
    rule: Rule,
    *,
    is_told: bool,
    references: int,
) -> None:
    """Tell of a decision; `references` is how often the request names the resource."""
    level = _TRACE
    if is_told:
        level = logging.DEBUG if rule.allowed else logging.INFO
    if not logger.isEnabledFor(level):
        return
    api = BY_KEY.get(requester.api_key)
    logger.log(
        level,
        "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s "
        "for request = %s with resourceRefCount = %d based on rule %s",
        requester.principal,
        "Allowed" if rule.allowed else "Denied",
        operation.name,
        requester.host,
        kind.name.title().replace("_", ""),
        name,
        requester.api_key if api is None else api.name,
        references,
        rule.text,
    )
