"""ListTransactions (66): the transactional ids that pass a request's filters."""

from __future__ import annotations

from broker.authorized_operations import Operation
from broker.context import RequestContext
from broker.security.authorization import ResourceKind
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def handle(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List those transactional ids that the client may describe."""
    response = context.broker.transactions.list_transactions(request)
    response.transaction_states = [
        one
        for one in response.transaction_states
        if context.may(
            Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, one.transactional_id
        )
    ]
    return response
