"""InitProducerId (22): an id for a producer, which makes its retries idempotent (KIP-98).

Without a transactional id every request gets a new id with epoch 0, whatever id the producer
had (TransactionCoordinator.handleInitProducerId).
"""

from __future__ import annotations

import logging

from broker.context import RequestContext
from broker.errors import code_of
from broker.metadata import MetadataError
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger(__name__)

_NONE = -1


async def handle(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Hand out a producer id."""
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return _refusal(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refuse_transactions(context, request.transactional_id)
    try:
        taken = await context.broker.producer_ids.take()
    except MetadataError as error:
        logger.error("could not allocate producer ids: %s", error)
        return _refusal(code_of(error))
    return _response(ErrorCode.NONE, taken, 0)


def _refuse_transactions(context: RequestContext, transactional_id: str) -> InitProducerIdResponse:
    if not transactional_id:
        return _refusal(ErrorCode.INVALID_REQUEST)
    logger.warning(
        "refused a transactional producer client_id=%s transactional_id=%s: "
        "transactions are not supported yet",
        context.client_id,
        transactional_id,
    )
    # Not COORDINATOR_NOT_AVAILABLE, which clients would retry until they time out without
    # saying why; this one they report at once.
    return _refusal(ErrorCode.UNSUPPORTED_VERSION)


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return _response(code, _NONE, _NONE)


def _response(code: ErrorCode, producer_id: int, epoch: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=code, producer_id=producer_id, producer_epoch=epoch
    )
