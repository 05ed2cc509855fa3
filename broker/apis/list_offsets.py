"""ListOffsets (2): the first and last offsets of partitions, or the offset at a time.

Special timestamps: -1 latest, -2 earliest, -3 the record with the largest timestamp (v7,
KIP-734), -4 earliest on local disk (v8, KIP-405), -5 latest in remote storage (v9, KIP-1005),
-6 earliest not yet uploaded (v11, KIP-1023). There is no remote storage: -4 is the log start
offset, -5 and -6 find nothing, as in a Kafka broker without it.
"""

from __future__ import annotations

from broker.context import RequestContext
from broker.errors import code_of
from protocol.errors import ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage.errors import StorageError
from storage.log import Log, TimestampedOffset

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6

_SINCE_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED = 1


def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look the offsets up."""
    topics = []
    for wanted in request.topics:
        topic = context.broker.topics.get(wanted.name)
        partitions = []
        for partition in wanted.partitions:
            index = partition.partition_index
            if topic is None or not 0 <= index < len(topic.partitions):
                partitions.append(_refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            log = topic.partitions[index]
            is_committed = request.isolation_level == _READ_COMMITTED
            partitions.append(_list(context, log, partition, is_committed))
        topics.append(ListOffsetsTopicResponse(name=wanted.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _list(
    context: RequestContext, log: Log, wanted: ListOffsetsPartition, is_committed: bool
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    if wanted.current_leader_epoch not in (-1, log.leader_epoch):
        is_old = wanted.current_leader_epoch < log.leader_epoch
        fenced, unknown = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
        return _refused(index, fenced if is_old else unknown)
    if context.api_version < _SINCE_VERSION.get(wanted.timestamp, 0):
        return _refused(index, ErrorCode.UNSUPPORTED_VERSION)
    try:
        found = _find(log, wanted.timestamp, is_committed)
    except StorageError as error:
        return _refused(index, code_of(error))
    if found is None:
        return _refused(index, ErrorCode.NONE)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=0,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _find(log: Log, timestamp: int, is_committed: bool) -> TimestampedOffset | None:
    if timestamp == LATEST:
        end = log.last_stable_offset if is_committed else log.high_watermark
        return TimestampedOffset(end, -1, log.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return TimestampedOffset(start, -1, log.epoch_of(start))
    if timestamp == MAX_TIMESTAMP:
        return log.offset_of_max_timestamp()
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return None
    return log.offset_for_timestamp(timestamp)


def _refused(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
    )
