"""DescribeShareGroupOffsets (90): the positions of share groups (KIP-932).

Version 1 adds the lag (KIP-1226).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string, uuid


@struct
class DescribeShareGroupOffsetsRequestTopic:
    """The partitions of one topic."""

    topic_name: string
    partitions: list[int32]


@struct
class DescribeShareGroupOffsetsRequestGroup:
    """A group; without topics all of its topics are meant."""

    group_id: string
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    """Names the groups."""

    groups: list[DescribeShareGroupOffsetsRequestGroup]


@struct
class DescribeShareGroupOffsetsResponsePartition:
    """A group's position in one partition."""

    partition_index: int32 = field()
    start_offset: int64 = field()
    leader_epoch: int32 = field()
    lag: int64 = field("1+", default=-1)
    error_code: int16 = field()
    error_message: string | None = field(default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    """The partitions of one topic."""

    topic_name: string = field()
    topic_id: uuid = field()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field()


@struct
class DescribeShareGroupOffsetsResponseGroup:
    """The positions of one group."""

    group_id: string = field()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)


@message(key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """The positions of each group."""

    throttle_time_ms: int32 = field()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field()
