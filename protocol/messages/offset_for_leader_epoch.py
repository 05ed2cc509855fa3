"""OffsetForLeaderEpoch (23): find the end of a leader epoch, where two logs part (KIP-320).

Version notes: 2 adds the current leader epoch, for fencing; 3 the replica id, which is -2 for a
reader that may see past the high watermark; 4 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string


@struct
class OffsetForLeaderPartition:
    """A partition and an epoch of it."""

    partition: int32
    current_leader_epoch: int32 = field("2+", default=-1)
    leader_epoch: int32


@struct
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: string
    partitions: list[OffsetForLeaderPartition]


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Epochs to look up."""

    replica_id: int32 = field("3+", default=-2)
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    """The greatest epoch not past the one asked for, and its end offset (exclusive)."""

    error_code: int16 = field()
    partition: int32
    leader_epoch: int32 = field("1+", default=-1)
    end_offset: int64 = field(default=-1)


@struct
class OffsetForLeaderTopicResult:
    """The ends found in one topic."""

    topic: string
    partitions: list[EpochEndOffset]


@message(key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """The ends found."""

    throttle_time_ms: int32 = field("2+")
    topics: list[OffsetForLeaderTopicResult]
