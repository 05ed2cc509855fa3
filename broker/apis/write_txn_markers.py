"""WriteTxnMarkers (27): end transactions in partitions, whatever their coordinator knows.

An administrator does so with a transaction that hangs: one that no coordinator will end (KIP-664).
"""

from __future__ import annotations

from broker.authorized_operations import Operation
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
    """Write the markers to the partitions that there are; a producer's are told together.

    As in Kafka a marker of no producer ends all: those before it are written, and told as failed.
    """
    if not (
        context.may_to_cluster(Operation.ALTER, logs_denied=False)
        or context.may_to_cluster(Operation.CLUSTER_ACTION)
    ):
        return _alike(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    told: dict[int, Codes] = {}
    for asked in request.markers:
        codes = await _write(context, asked)
        if codes is None:
            return _alike(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        if codes:
            told.setdefault(asked.producer_id, {}).update(codes)
    return _answer(told)


def _alike(request: WriteTxnMarkersRequest, error: ErrorCode) -> WriteTxnMarkersResponse:
    return _answer(
        {one.producer_id: dict.fromkeys(_partitions(one), error) for one in request.markers}
    )


async def _write(context: RequestContext, asked: WritableTxnMarker) -> Codes | None:
    partitions = _partitions(asked)
    if asked.producer_id < 0 or asked.producer_epoch < 0:
        if any(_is_here(context, one) for one in partitions):
            return None
        return dict.fromkeys(partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    marker = Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        context.broker.clock.now_ms(),
        asked.transaction_version,
    )
    problems = await context.broker.markers.write(marker, partitions)
    return {one: _code(problems.get(one)) for one in partitions}


def _partitions(asked: WritableTxnMarker) -> list[TopicPartition]:
    """Return what a marker names, each once."""
    named = {
        TopicPartition(topic.name, partition): None
        for topic in asked.topics
        for partition in topic.partition_indexes
    }
    return list(named)


def _answer(told: dict[int, Codes]) -> WriteTxnMarkersResponse:
    markers = [
        WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(codes))
        for producer_id, codes in told.items()
    ]
    return WriteTxnMarkersResponse(markers=markers)


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
