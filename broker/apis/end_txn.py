"""EndTxn (26): commit or abort a transaction. The answer waits until the decision is durable.

Versions 0 to 5. v2: PRODUCER_FENCED (KIP-588). v3: flexible. v4: TRANSACTION_ABORTABLE. v5: the
epoch rises, and the answer has the id and epoch of the next transaction (KIP-890).
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.coordination.effects import Producer
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.transactions.state import EPOCH_RAISED_SINCE
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

# Clients from these versions on know PRODUCER_FENCED, and expect a raised epoch.
_FENCED_SINCE = 2
_RAISED_SINCE = 5


async def handle(
    services: Services, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse:
    """Prepare the end of a producer's transaction."""
    if not context.may(
        AclOperation.WRITE, ResourceKind.TRANSACTIONAL_ID, request.transactional_id
    ):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    version = context.api_version
    granted = await services.transactions.end(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        is_commit=request.committed,
        version=EPOCH_RAISED_SINCE if version >= _RAISED_SINCE else 0,
    )
    return EndTxnResponse(
        error_code=known_error(granted.error, version, _FENCED_SINCE),
        producer_id=granted.producer_id,
        producer_epoch=granted.epoch,
    )


def known_error(error: ErrorCode, api_version: int, fenced_since: int) -> ErrorCode:
    """Return an error that clients of a version know (KIP-588)."""
    if error is ErrorCode.PRODUCER_FENCED and api_version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
