"""ListTransactions (66): the transactional ids that pass a request's filters.

Versions 0 to 2. All are flexible. v1: a filter by duration (KIP-994). v2: a filter by pattern
(KIP-1152).
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.broker.context import RequestContext
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.protocol.pacing import paced


def handle(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | Awaitable[ListTransactionsResponse]:
    """List the transactional ids that the client may describe.

    The answer is an awaitable when a pattern takes long to match.
    """
    answer = services.transactions.list_transactions(request)
    if isinstance(answer, ListTransactionsResponse):
        return _permitted(context, answer)
    return _when_matched(context, answer)


async def _when_matched(
    context: RequestContext, answer: Awaitable[ListTransactionsResponse]
) -> ListTransactionsResponse:
    return _permitted(context, await answer)


def _permitted(
    context: RequestContext, response: ListTransactionsResponse
) -> ListTransactionsResponse:
    response.transaction_states = [
        one
        for one in paced(response.transaction_states)
        if context.may(
            AclOperation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, one.transactional_id
        )
    ]
    return response
