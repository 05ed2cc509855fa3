"""InitProducerId (22): an id for a producer, which makes its retries idempotent (KIP-98).

Without a transactional id every request gets a new id with epoch 0, whatever id the producer
had (TransactionCoordinator.handleInitProducerId). With one it gets that of the transactional id,
with an epoch that fences the producer's past lives.
"""

from __future__ import annotations

import logging

from broker.apis.end_txn import told
from broker.context import RequestContext
from broker.coordination.effects import Producer
from broker.errors import code_of
from broker.metadata import MetadataError
from broker.transactions.effects import Granted
from broker.transactions.state import NO_EPOCH, NO_PRODUCER
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

logger = logging.getLogger(__name__)

# Clients of this version and later know PRODUCER_FENCED.
_FENCED_SINCE = 4


async def handle(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Hand out a producer id."""
    granted = await _grant(context, request)
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=told(granted.error, context.api_version, _FENCED_SINCE),
        producer_id=granted.producer_id,
        producer_epoch=granted.epoch,
    )


async def _grant(context: RequestContext, request: InitProducerIdRequest) -> Granted:
    broker = context.broker
    expected = Producer(request.producer_id, request.producer_epoch)
    if (expected.producer_id == NO_PRODUCER) != (expected.epoch == NO_EPOCH):
        return Granted(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await broker.transactions.initialize(
            request.transactional_id,
            request.transaction_timeout_ms,
            None if expected.producer_id == NO_PRODUCER else expected,
        )
    try:
        return Granted(ErrorCode.NONE, await broker.producer_ids.take(), 0)
    except MetadataError as error:
        logger.error("could not allocate producer ids: %s", error)
        return Granted(code_of(error))
