"""DescribeTransactions (65): the state of transactional ids."""

from __future__ import annotations

from broker.authorized_operations import Operation
from broker.context import RequestContext
from broker.security.authorization import ResourceKind
from broker.transactions.listing import not_described
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each transactional id, with those of its topics that the client may describe."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(context, one) for one in request.transactional_ids]
    )


def _describe(context: RequestContext, transactional_id: str) -> TransactionState:
    kind = ResourceKind.TRANSACTIONAL_ID
    if not context.may(Operation.DESCRIBE, kind, transactional_id):
        return not_described(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    state = context.broker.transactions.describe(transactional_id)
    state.topics = [
        one
        for one in state.topics
        if context.may(Operation.DESCRIBE, ResourceKind.TOPIC, one.topic)
    ]
    return state
