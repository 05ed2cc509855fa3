"""WriteTxnMarkers (27): end transactions in partitions, whatever their coordinator knows.

An administrator does so with a transaction that hangs: one that no coordinator will end (KIP-664).
"""

from __future__ import annotations

from broker.context import RequestContext
from broker.errors import Explained, code_of
from broker.transactions.state import TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from storage.transactions import Marker


async def handle(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write the markers to the partitions that there are."""
    return WriteTxnMarkersResponse(
        markers=[await _write(context, one) for one in request.markers]
    )


async def _write(context: RequestContext, asked: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        context.broker.clock.now_ms(),
        asked.transaction_version,
    )
    partitions = {
        TopicPartition(topic.name, partition): None
        for topic in asked.topics
        for partition in topic.partition_indexes
    }
    problems = await context.broker.markers.write(marker, partitions)
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=partition,
                        error_code=_code(problems.get(TopicPartition(topic.name, partition))),
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in asked.topics
        ],
    )


# What the coordinator of groups says of a partition that it does not serve, as Kafka tells it.
_NOT_SERVED = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    )
)


def _code(problem: Explained | None) -> ErrorCode:
    code = ErrorCode.NONE if problem is None else code_of(problem)
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _NOT_SERVED else code
