"""The records of the coordinator of share groups in __consumer_offsets (KIP-932).

The key and the value of each record begin with an int16. In a key it is the kind of the record,
declared here as the version of the message; in a value it is the version of the layout. A null
value is a tombstone.

    key    | 10 | ShareGroupMemberMetadataKey               a member and its subscription
           | 11 | ShareGroupMetadataKey                     the group's epoch
           | 12 | ShareGroupTargetAssignmentMetadataKey     the epoch of the target assignment
           | 13 | ShareGroupTargetAssignmentMemberKey       a member's target partitions
           | 14 | ShareGroupCurrentMemberAssignmentKey      a member's current partitions
           | 15 | ShareGroupStatePartitionMetadataKey       the partitions that have state
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int32, int64, string, uuid


@message(versions="10", flexible="none")
class ShareGroupMemberMetadataKey:
    """Identifies a member."""

    group_id: string
    member_id: string


@message(versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """A member and its subscription."""

    rack_id: string | None
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]


@message(versions="11", flexible="none")
class ShareGroupMetadataKey:
    """Identifies a group."""

    group_id: string


@message(versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """The epoch of a group, with a hash of the topics that it reads (KIP-1101)."""

    epoch: int32
    metadata_hash: int64


@message(versions="12", flexible="none")
class ShareGroupTargetAssignmentMetadataKey:
    """Identifies a group."""

    group_id: string


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The group epoch for which the target assignment was computed."""

    assignment_epoch: int32
    assignment_timestamp: int64 = field(tag=0)


@message(versions="13", flexible="none")
class ShareGroupTargetAssignmentMemberKey:
    """Identifies a member."""

    group_id: string
    member_id: string


@struct
class TopicPartition:
    """Partitions of one topic."""

    topic_id: uuid
    partitions: list[int32]


@message(versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The partitions of a member in the target assignment."""

    topic_partitions: list[TopicPartition]


@message(versions="14", flexible="none")
class ShareGroupCurrentMemberAssignmentKey:
    """Identifies a member."""

    group_id: string
    member_id: string


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: uuid
    partitions: list[int32]


@message(versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """The current partitions of a member."""

    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]


@message(versions="15", flexible="none")
class ShareGroupStatePartitionMetadataKey:
    """Identifies a group."""

    group_id: string


@struct
class TopicPartitionsInfo:
    """Partitions of one topic."""

    topic_id: uuid
    topic_name: string
    partitions: list[int32]


@struct
class TopicInfo:
    """A topic."""

    topic_id: uuid
    topic_name: string


@message(versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The partitions that have state, or are about to get or lose it."""

    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
