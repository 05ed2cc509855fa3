"""ListOffsets (2): find the offset of a time, or of an end of the log.

A negative timestamp asks for a place instead of a time: -1 latest, -2 earliest, -3 the
record of the greatest timestamp, -4 earliest local, -5 latest tiered, -6 earliest pending
upload.

Version notes: 2 adds the isolation level; 4 the leader epochs; 6 is flexible; 7 permits -3
(KIP-734), 8 permits -4 (KIP-405), 9 permits -5 (KIP-1005); 10 adds the timeout of remote
look-ups (KIP-1075); 11 permits -6 (KIP-1023).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, int64, string


@struct
class ListOffsetsPartition:
    """A partition and the time, or the place, to find."""

    partition_index: int32
    current_leader_epoch: int32 = field("4+", default=-1)
    timestamp: int64


@struct
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: string
    partitions: list[ListOffsetsPartition]


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    """Asks about partitions; replica_id is -1 from a consumer."""

    replica_id: int32
    isolation_level: int8 = field("2+")
    topics: list[ListOffsetsTopic]
    timeout_ms: int32 = field("10+")


@struct
class ListOffsetsPartitionResponse:
    """The first record at or after the time; offset -1 when there is none."""

    partition_index: int32
    error_code: int16 = field()
    timestamp: int64 = field("1+", default=-1)
    offset: int64 = field("1+", default=-1)
    leader_epoch: int32 = field("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    """The offsets found in one topic."""

    name: string
    partitions: list[ListOffsetsPartitionResponse]


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    """The offsets found."""

    throttle_time_ms: int32 = field("2+")
    topics: list[ListOffsetsTopicResponse]
