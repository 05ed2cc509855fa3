"""OffsetFetch (9): read the offsets that a group has stored.

Version notes: 2 asks for all topics by null, and adds a top-level error; 5 adds the leader
epoch; 6 is flexible; 7 can wait for open transactions (KIP-447); 8 asks for several groups at
once (KIP-709); 9 adds the member, for the consumer protocol (KIP-848); 10 names topics by id.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, int64, string, uuid


@struct
class OffsetFetchRequestTopic:
    """The partitions of one topic, up to version 7."""

    name: string = field("0-7")
    partition_indexes: list[int32] = field("0-7")


@struct
class OffsetFetchRequestTopics:
    """The partitions of one topic, from version 8."""

    name: string = field("8-9")
    topic_id: uuid = field("10+")
    partition_indexes: list[int32] = field("8+")


@struct
class OffsetFetchRequestGroup:
    """A group, the member that asks, and the topics (null: all)."""

    group_id: string = field("8+")
    member_id: string | None = field("9+", default=None)
    member_epoch: int32 = field("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field("8+")


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    """Asks for a group's offsets; from version 8 for those of several groups."""

    group_id: string = field("0-7")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+")
    require_stable: boolean = field("7+")


@struct
class OffsetFetchResponsePartition:
    """One stored offset, -1 when there is none; up to version 7."""

    partition_index: int32 = field("0-7")
    committed_offset: int64 = field("0-7")
    committed_leader_epoch: int32 = field("5-7", default=-1)
    metadata: string | None = field("0-7")
    error_code: int16 = field("0-7")


@struct
class OffsetFetchResponseTopic:
    """The offsets of one topic, up to version 7."""

    name: string = field("0-7")
    partitions: list[OffsetFetchResponsePartition] = field("0-7")


@struct
class OffsetFetchResponsePartitions:
    """One stored offset, -1 when there is none; from version 8."""

    partition_index: int32 = field("8+")
    committed_offset: int64 = field("8+")
    committed_leader_epoch: int32 = field("8+", default=-1)
    metadata: string | None = field("8+")
    error_code: int16 = field("8+")


@struct
class OffsetFetchResponseTopics:
    """The offsets of one topic, from version 8."""

    name: string = field("8-9")
    topic_id: uuid = field("10+")
    partitions: list[OffsetFetchResponsePartitions] = field("8+")


@struct
class OffsetFetchResponseGroup:
    """The offsets of one group."""

    group_id: string = field("8+")
    topics: list[OffsetFetchResponseTopics] = field("8+")
    error_code: int16 = field("8+")


@message(key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """The stored offsets; from version 8 group by group."""

    throttle_time_ms: int32 = field("3+")
    topics: list[OffsetFetchResponseTopic] = field("0-7")
    error_code: int16 = field("2-7")
    groups: list[OffsetFetchResponseGroup] = field("8+")
