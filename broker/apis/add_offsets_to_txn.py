"""AddOffsetsToTxn (25): make a group's partition of __consumer_offsets part of a transaction."""

from __future__ import annotations

from collections.abc import Awaitable

from broker import topic_names
from broker.apis.end_txn import told
from broker.context import RequestContext
from broker.coordination.effects import Producer
from broker.coordination.java import partition_for
from broker.transactions.state import TopicPartition
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

# Clients of this version and later know PRODUCER_FENCED.
_FENCED_SINCE = 2


async def handle(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add the group's partition."""
    broker = context.broker
    partition = partition_for(request.group_id, broker.offsets_log.partition_count)
    added = broker.transactions.add_partitions(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        frozenset({TopicPartition(topic_names.CONSUMER_OFFSETS, partition)}),
        version=0,
    )
    error = await added if isinstance(added, Awaitable) else added
    return AddOffsetsToTxnResponse(error_code=told(error, context.api_version, _FENCED_SINCE))
