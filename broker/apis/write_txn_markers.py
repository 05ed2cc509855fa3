"""WriteTxnMarkers (27): end transactions in partitions, without asking their coordinator.

An administrator does so with a hanging transaction, which no coordinator will end (KIP-664).

Versions 1 to 2. All are flexible. v2: the transaction version of a marker (KIP-1228).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from odradek.broker.context import RequestContext
from odradek.broker.errors import Explained, code_of
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.broker.transactions.markers import Problems
from odradek.broker.transactions.state import NO_EPOCH, NO_PRODUCER, TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.pacing import paced
from odradek.storage.transactions import Marker

Codes = dict[TopicPartition, ErrorCode]

# The number of markers that wait for the disk together; between two turns the loop serves others.
_AT_ONCE = 100


async def handle(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write the markers to existing partitions; the results of a producer are reported together.

    As in Kafka a marker without a producer fails the whole request: the markers before it are
    written, but reported as failed.
    """
    if not (
        context.may_to_cluster(AclOperation.ALTER, logs_denied=False)
        or context.may_to_cluster(AclOperation.CLUSTER_ACTION)
    ):
        return _alike(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    by_producer: dict[int, Codes] = {}
    for start in paced(range(0, len(request.markers), _AT_ONCE)):
        # A marker's partitions are listed once: each takes 100 bytes, and 4 in the request.
        some = [(one, _partitions(one)) for one in request.markers[start : start + _AT_ONCE]]
        sound = list(takewhile(lambda asked: not _fails(services, *asked), some))
        written = await services.markers.write_all(
            (_marker(services, asked), partitions)
            for asked, partitions in sound
            if _is_one(asked)
        )
        if len(sound) < len(some):
            return _alike(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        problems = iter(written)
        for asked, partitions in some:
            codes = _codes(partitions, next(problems) if _is_one(asked) else None)
            if asked.producer_id in by_producer:
                by_producer[asked.producer_id].update(codes)
            elif codes:
                by_producer[asked.producer_id] = codes
    return _answer(by_producer)


def _alike(request: WriteTxnMarkersRequest, error: ErrorCode) -> WriteTxnMarkersResponse:
    return _answer(
        {one.producer_id: dict.fromkeys(_partitions(one), error) for one in paced(request.markers)}
    )


def _is_one(asked: WritableTxnMarker) -> bool:
    """Return whether a marker names a producer; Kafka writes it for other ids below zero, too."""
    return asked.producer_id != NO_PRODUCER and asked.producer_epoch != NO_EPOCH


def _fails(
    services: Services, asked: WritableTxnMarker, partitions: Iterable[TopicPartition]
) -> bool:
    """Return whether a marker fails the request: no producer, but a partition that is here."""
    return not _is_one(asked) and any(_is_here(services, one) for one in partitions)


def _marker(services: Services, asked: WritableTxnMarker) -> Marker:
    return Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.coordinator_epoch,
        asked.transaction_result,
        services.clock.now_ms(),
        asked.transaction_version,
    )


def _codes(partitions: Iterable[TopicPartition], problems: Problems | None) -> Codes:
    """Return each partition's code. `problems` is None for a marker without a producer."""
    if problems is None:
        return dict.fromkeys(partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {one: _code(problems.get(one)) for one in paced(partitions)}


def _partitions(asked: WritableTxnMarker) -> list[TopicPartition]:
    """Return the partitions that a marker names, each once."""
    named = {
        TopicPartition(topic.name, partition): None
        for topic in paced(asked.topics)
        for partition in paced(topic.partition_indexes)
    }
    return list(named)


def _answer(by_producer: dict[int, Codes]) -> WriteTxnMarkersResponse:
    markers = [
        WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(codes))
        for producer_id, codes in paced(by_producer.items())
    ]
    return WriteTxnMarkersResponse(markers=markers)


def _is_here(services: Services, one: TopicPartition) -> bool:
    topic = services.topics.get(one.topic)
    return topic is not None and 0 <= one.partition < len(topic.partitions)


def _topics(codes: Codes) -> list[WritableTxnMarkerTopicResult]:
    by_topic: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (name, partition), code in paced(codes.items()):
        one = WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
        by_topic.setdefault(name, []).append(one)
    return [
        WritableTxnMarkerTopicResult(name=name, partitions=partitions)
        for name, partitions in by_topic.items()
    ]


# Errors of the group coordinator for a partition that it does not serve; Kafka maps them, too.
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
