"""AddOffsetsToTxn (25): add a group's partition of __consumer_offsets to a transaction.

Versions 0 to 4. v2: PRODUCER_FENCED (KIP-588). v3: flexible. v4: TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.broker.apis.end_txn import known_error
from odradek.broker.context import RequestContext
from odradek.broker.coordination.effects import Producer
from odradek.broker.orders.java import partition_for
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.topics import names as topic_names
from odradek.broker.transactions.state import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

# Clients of this version and later know PRODUCER_FENCED.
_FENCED_SINCE = 2


async def handle(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add the group's partition."""
    refused = None
    if not context.may(
        AclOperation.WRITE, ResourceKind.TRANSACTIONAL_ID, request.transactional_id
    ):
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not context.may(AclOperation.READ, ResourceKind.GROUP, request.group_id):
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if refused is not None:
        return AddOffsetsToTxnResponse(error_code=refused)
    partition = partition_for(request.group_id, services.offsets_log.partition_count)
    added = services.transactions.add_partitions(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        {TopicPartition(topic_names.CONSUMER_OFFSETS, partition): None},
        version=0,
    )
    error = await added if isinstance(added, Awaitable) else added
    error = known_error(error, context.api_version, _FENCED_SINCE)
    return AddOffsetsToTxnResponse(error_code=error)
