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

Codes = dict[TopicPartition, ErrorCode]


async def handle(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write the markers to the partitions that there are; a producer's are told together."""
    told: dict[int, Codes] = {}
    for asked in request.markers:
        told.setdefault(asked.producer_id, {}).update(await _write(context, asked))
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(codes))
            for producer_id, codes in told.items()
        ]
    )


async def _write(context: RequestContext, asked: WritableTxnMarker) -> Codes:
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
    if asked.producer_id < 0 or asked.producer_epoch < 0:
        # Kafka fails over it, but for partitions that are not there.
        is_any = any(_is_here(context, one) for one in partitions)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR if is_any else unknown)
    problems = await context.broker.markers.write(marker, partitions)
    return {one: _code(problems.get(one)) for one in partitions}


def _is_here(context: RequestContext, one: TopicPartition) -> bool:
    topic = context.broker.topics.get(one.topic)
    return topic is not None and 0 <= one.partition < len(topic.partitions)


def _topics(codes: Codes) -> list[WritableTxnMarkerTopicResult]:
    by_topic: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (name, partition), code in codes.items():
        one = WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
        by_topic.setdefault(name, []).append(one)
    return [
        WritableTxnMarkerTopicResult(name=name, partitions=partitions)
        for name, partitions in by_topic.items()
    ]


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
