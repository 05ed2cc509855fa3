"""DescribeTransactions (65): the state of transactional ids.

Version 0 only.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.loop.repeats import answer_each
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.transactions.listing import not_described
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


def handle(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each transactional id, with the topics in it that the client may describe."""
    states = answer_each(
        request.transactional_ids,
        name=lambda transactional_id: transactional_id,
        answer=lambda transactional_id: _describe(services, context, transactional_id),
        size_bytes=lambda state: len(
            encode(DescribeTransactionsResponse(transaction_states=[state]), context.api_version)
        ),
    )
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(
    services: Services, context: RequestContext, transactional_id: str
) -> TransactionState:
    kind = ResourceKind.TRANSACTIONAL_ID
    if not context.may(AclOperation.DESCRIBE, kind, transactional_id):
        return not_described(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    state = services.transactions.describe(transactional_id)
    permitted = context.permitted(
        AclOperation.DESCRIBE, ResourceKind.TOPIC, (one.topic for one in state.topics)
    )
    state.topics = [one for one in state.topics if one.topic in permitted]
    return state
