"""DescribeTransactions (65): the state of transactional ids."""

from __future__ import annotations

from broker.context import RequestContext
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


def handle(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each transactional id."""
    coordinator = context.broker.transactions
    return DescribeTransactionsResponse(
        transaction_states=[coordinator.describe(one) for one in request.transactional_ids]
    )
