"""DeleteRecords (21): move the log start offset of partitions forward (KIP-107).

Versions 0 to 2. v2: flexible.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping, Set

from odradek.broker.context import RequestContext
from odradek.broker.errors import EXPLAINED, MetadataError, Refusal, code_of
from odradek.broker.orders.scala import grouped_order, table_of
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.topics.partitions import SharedLogs
from odradek.broker.topics.registry import Topics
from odradek.broker.topics.topic import Topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.protocol.pacing import paced
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


def handle(
    services: Services, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    """Cut logs, partition by partition; for a partition named twice the last offset counts."""
    topics = services.topics
    permitted = context.permitted(
        AclOperation.DELETE, ResourceKind.TOPIC, (one.name for one in request.topics)
    )
    wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for one in paced(request.topics):
        for asked in paced(one.partitions):
            wanted.setdefault(one.name, {})[asked.partition_index] = asked
    cut: dict[Log, int] = {}
    response = DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[
                    _cut(topics.get(name), wanted[name][index], cut)
                    if name in permitted
                    else _denied(wanted[name][index])
                    for index in paced(indexes)
                ],
            )
            for name, indexes in paced(_in_order(wanted, permitted, topics))
        ],
    )
    shared = services.partitions.shared
    if shared is None or not any(log.is_shared for log in cut):
        return response
    return _stored(shared, response, {log: start for log, start in cut.items() if log.is_shared})


async def _stored(
    shared: SharedLogs, response: DeleteRecordsResponse, cut: Mapping[Log, int]
) -> DeleteRecordsResponse:
    """Answer once no other broker would serve the records again that were deleted."""
    try:
        lost: Iterable[Log] = await shared.store_starts(cut)
    except MetadataError:
        lost = cut
    refused = {(log.topic, log.partition) for log in lost}
    for topic in response.topics if refused else ():
        topic.partitions = [
            _refused(one.partition_index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if (topic.name, one.partition_index) in refused
            else one
            for one in topic.partitions
        ]
    return response


def _in_order(
    wanted: Mapping[str, Iterable[int]], permitted: Set[str], topics: Topics
) -> list[tuple[str, list[int]]]:
    """Return topics and partitions in the order of KafkaApis.handleDeleteRecordsRequest's maps.

    Kafka groups the partitions that it cut by topic. When it cut none, the map is an immutable
    one: first come partitions that the client may not delete from, then those that do not exist.
    """
    keys = [(name, index) for name, indexes in paced(wanted.items()) for index in paced(indexes)]
    if any(name in permitted and _exists(topics.get(name), index) for name, index in paced(keys)):
        return grouped_order(keys)
    denied = [key for key in paced(keys) if key[0] not in permitted]
    unknown = [key for key in paced(keys) if key[0] in permitted]
    return grouped_order([*table_of(denied), *table_of(unknown)], is_mutable=False)


def _exists(topic: Topic | None, partition: int) -> bool:
    return topic is not None and 0 <= partition < len(topic.partitions)


def _cut(
    topic: Topic | None, asked: DeleteRecordsPartition, cut: dict[Log, int]
) -> DeleteRecordsPartitionResult:
    """Delete records of a partition, and note its log with the new start offset."""
    try:
        log = _delete_before(topic, asked)
    except EXPLAINED as error:
        return _refused(asked.partition_index, code_of(error))
    cut[log] = log.log_start_offset
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=cut[log], error_code=0
    )


def _denied(asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    return _refused(asked.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _refused(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=code
    )


def _delete_before(topic: Topic | None, asked: DeleteRecordsPartition) -> Log:
    """Delete records, return the log (Partition.deleteRecordsOnLeader)."""
    log = topic.log(asked.partition_index) if topic else None
    if topic is None or log is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if topic.is_internal:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if log.config.compact and not log.config.delete:
        # Readers of a compacted topic rely on each key's latest value.
        raise Refusal(ErrorCode.POLICY_VIOLATION)
    offset = log.high_watermark if asked.offset == _HIGH_WATERMARK else asked.offset
    if offset < 0:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    before = log.log_start_offset
    log.advance_start_offset(offset)
    if log.log_start_offset > before:
        logger.info(
            "deleted records topic=%s partition=%d start=%d", topic.name, log.partition, offset
        )
    return log
