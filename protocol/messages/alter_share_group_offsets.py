"""AlterShareGroupOffsets (91): move the start of a share group that has no members (KIP-932).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string, uuid


@struct
class AlterShareGroupOffsetsRequestPartition:
    """A partition and its new start."""

    partition_index: int32
    start_offset: int64


@struct
class AlterShareGroupOffsetsRequestTopic:
    """The partitions of one topic."""

    topic_name: string
    partitions: list[AlterShareGroupOffsetsRequestPartition]


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsRequest:
    """Names partitions of one group."""

    group_id: string
    topics: list[AlterShareGroupOffsetsRequestTopic]


@struct
class AlterShareGroupOffsetsResponsePartition:
    """Whether one partition's start is moved."""

    partition_index: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    """The partitions of one topic."""

    topic_name: string = field()
    topic_id: uuid = field()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field()


@message(key=91, versions="0", flexible="0+")
class AlterShareGroupOffsetsResponse:
    """Whether each start is moved."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field()
