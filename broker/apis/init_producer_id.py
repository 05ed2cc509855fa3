"""InitProducerId (22): an id for a producer, which makes its retries idempotent (KIP-98).

Without a transactional id every request gets a new id with epoch 0, even if the producer already
had an id (TransactionCoordinator.handleInitProducerId). With a transactional id it gets the
producer id of that, with an epoch that fences earlier instances of the producer.

Versions 0 to 5. v2: flexible. v3: a producer continues with its id (KIP-360). v4: PRODUCER_FENCED
(KIP-588). v5: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

import logging

from odradek.broker.apis.end_txn import known_error
from odradek.broker.context import RequestContext
from odradek.broker.coordination.effects import Producer
from odradek.broker.errors import MetadataError
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.transactions.effects import Granted
from odradek.broker.transactions.state import NO_EPOCH, NO_PRODUCER
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

logger = logging.getLogger(__name__)

# Clients of this version and later know PRODUCER_FENCED.
_FENCED_SINCE = 4


async def handle(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Hand out a producer id."""
    granted = await _grant(services, context, request)
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=known_error(granted.error, context.api_version, _FENCED_SINCE),
        producer_id=granted.producer_id,
        producer_epoch=granted.epoch,
    )


async def _grant(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> Granted:
    refused = _refusal(context, request.transactional_id)
    if refused is not ErrorCode.NONE:
        return Granted(refused)
    expected = Producer(request.producer_id, request.producer_epoch)
    if (expected.producer_id == NO_PRODUCER) != (expected.epoch == NO_EPOCH):
        return Granted(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await services.transactions.initialize(
            request.transactional_id,
            request.transaction_timeout_ms,
            None if expected.producer_id == NO_PRODUCER else expected,
        )
    try:
        return Granted(ErrorCode.NONE, await services.producer_ids.take(), 0)
    except MetadataError as error:
        logger.error("could not allocate producer ids: %s", error)
        # As Kafka's RPCProducerIdManager: older Java producers end at most other errors.
        return Granted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _refusal(context: RequestContext, transactional_id: str | None) -> ErrorCode:
    """Return the reason for a refusal, or NONE.

    A client that may write to a topic may do so idempotently (KIP-679).
    """
    if transactional_id is not None:
        if context.may(AclOperation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id):
            return ErrorCode.NONE
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if context.may_to_cluster(
        AclOperation.IDEMPOTENT_WRITE, logs_denied=False
    ) or context.may_any(AclOperation.WRITE, ResourceKind.TOPIC):
        return ErrorCode.NONE
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
