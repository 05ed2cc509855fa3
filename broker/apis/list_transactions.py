"""ListTransactions (66): the transactional ids that pass a request's filters."""

from __future__ import annotations

from broker.context import RequestContext
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List transactional ids."""
    return context.broker.transactions.list_transactions(request)
