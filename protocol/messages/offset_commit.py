"""OffsetCommit (8): store how far a group has read.

Version notes: 5 drops the retention time (the broker's configuration governs it); 6 adds the
leader epoch; 7 static membership (KIP-345); 8 is flexible; 9 also serves the consumer protocol
(KIP-848); 10 names topics by id.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string, uuid


@struct
class OffsetCommitRequestPartition:
    """The next offset to read, with the client's own metadata."""

    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = field("6+", default=-1)
    committed_metadata: string | None


@struct
class OffsetCommitRequestTopic:
    """The offsets of one topic."""

    name: string = field("0-9")
    topic_id: uuid = field("10+")
    partitions: list[OffsetCommitRequestPartition]


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    """Offsets to store; a generation of -1 without a member id comes from outside a group."""

    group_id: string
    generation_id_or_member_epoch: int32 = field("1+", default=-1)
    member_id: string = field("1+")
    group_instance_id: string | None = field("7+", default=None)
    retention_time_ms: int64 = field("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition:
    """Whether one offset was stored."""

    partition_index: int32
    error_code: int16 = field()


@struct
class OffsetCommitResponseTopic:
    """Whether the offsets of one topic were stored."""

    name: string = field("0-9")
    topic_id: uuid = field("10+")
    partitions: list[OffsetCommitResponsePartition]


@message(key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """Whether each offset was stored."""

    throttle_time_ms: int32 = field("3+")
    topics: list[OffsetCommitResponseTopic]
