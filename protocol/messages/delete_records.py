"""DeleteRecords (21): move the log start offset of partitions forward (KIP-107).

Version notes: 2 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string


@struct
class DeleteRecordsPartition:
    """A partition and its first offset to keep; -1 is the high watermark."""

    partition_index: int32
    offset: int64


@struct
class DeleteRecordsTopic:
    """The partitions to cut in one topic."""

    name: string
    partitions: list[DeleteRecordsPartition]


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Partitions to cut."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: int32


@struct
class DeleteRecordsPartitionResult:
    """The log start offset of one partition afterwards."""

    partition_index: int32
    low_watermark: int64
    error_code: int16 = field()


@struct
class DeleteRecordsTopicResult:
    """The result for one topic's partitions."""

    name: string
    partitions: list[DeleteRecordsPartitionResult]


@message(key=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """The result for each partition."""

    throttle_time_ms: int32 = field()
    topics: list[DeleteRecordsTopicResult]
