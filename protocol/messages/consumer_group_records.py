"""The records of the coordinator of consumer groups in __consumer_offsets (KIP-848).

Key and value each begin with an int16: the kind of a key, the version of a value:

    key | 3  | ConsumerGroupMetadataKey                   epoch of the group
        | 4  | ConsumerGroupPartitionMetadataKey          only removed nowadays (KIP-1101)
        | 5  | ConsumerGroupMemberMetadataKey             a member and its subscription
        | 6  | ConsumerGroupTargetAssignmentMetadataKey   epoch of the target assignment
        | 7  | ConsumerGroupTargetAssignmentMemberKey     a member's target partitions
        | 8  | ConsumerGroupCurrentMemberAssignmentKey    a member's current partitions
        | 16 | ConsumerGroupRegularExpressionKey          the topics that an expression matches

A null value is a tombstone. Kafka's source: GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int32, int64, octets, string, uuid


@message(versions="3", flexible="none")
class ConsumerGroupMetadataKey:
    """Identifies a group."""

    group_id: string


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The epoch of a group, with a hash of the topics that it reads (KIP-1101)."""

    epoch: int32
    metadata_hash: int64 = field(tag=0)


@message(versions="4", flexible="none")
class ConsumerGroupPartitionMetadataKey:
    """Identifies the group that reads the topics."""

    group_id: string


@message(versions="5", flexible="none")
class ConsumerGroupMemberMetadataKey:
    """Identifies a member."""

    group_id: string
    member_id: string


@struct
class ClassicProtocol:
    """An assignor that a member of the classic protocol knows, with its subscription."""

    name: string
    metadata: octets


@struct
class ClassicMemberMetadata:
    """The metadata that only members of the classic protocol have."""

    session_timeout_ms: int32 = field()
    supported_protocols: list[ClassicProtocol] = field()


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """A member and its subscription; of the consumer protocol where the metadata is null."""

    instance_id: string | None
    rack_id: string | None
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None
    rebalance_timeout_ms: int32 = field(default=-1)
    server_assignor: string | None
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0)


@message(versions="6", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    """Identifies the group of a target assignment."""

    group_id: string


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch of a target assignment, and the time it was computed (KIP-1263)."""

    assignment_epoch: int32
    assignment_timestamp: int64 = field(tag=0)


@message(versions="7", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey:
    """Identifies the member of a target assignment."""

    group_id: string
    member_id: string


@struct
class TopicPartition:
    """Partitions of a topic."""

    topic_id: uuid
    partitions: list[int32]


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The partitions of a member in the target assignment."""

    topic_partitions: list[TopicPartition]


@message(versions="8", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey:
    """Identifies the member of a current assignment."""

    group_id: string
    member_id: string


@struct
class TopicPartitions:
    """Partitions of a topic, each with the epoch at which the member got it."""

    topic_id: uuid
    partitions: list[int32]
    assignment_epochs: list[int32] | None = field(tag=0)


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """A member's partitions, and its progress towards the target."""

    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@message(versions="16", flexible="none")
class ConsumerGroupRegularExpressionKey:
    """Identifies an expression."""

    group_id: string
    regular_expression: string


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that an expression matches, and the time of the match."""

    topics: list[string]
    version: int64
    timestamp: int64
