"""The records of the coordinator of streams groups in __consumer_offsets (KIP-1071).

Key and value each begin with an int16: the kind of a key, the version of a value:

    key | 17 | StreamsGroupMetadataKey                   epoch of the group
        | 19 | StreamsGroupMemberMetadataKey             a member and its process
        | 20 | StreamsGroupTargetAssignmentMetadataKey   epoch of the target assignment
        | 21 | StreamsGroupTargetAssignmentMemberKey     a member's target tasks
        | 22 | StreamsGroupCurrentMemberAssignmentKey    a member's current tasks
        | 23 | StreamsGroupTopologyKey                   the topology of the application

A null value is a tombstone. Kafka's source: StreamsCoordinatorRecordHelpers.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, int64, string, uint16


@message(versions="17", flexible="none")
class StreamsGroupMetadataKey:
    """Identifies a group."""

    group_id: string


@struct
class LastAssignmentConfig:
    """A setting by which tasks were assigned."""

    key: string
    value: string


@message(versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    """The epoch of a group, with a hash of its topics and the topology that they fit."""

    epoch: int32
    metadata_hash: int64
    validated_topology_epoch: int32 = field(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(tag=1)


@message(versions="19", flexible="none")
class StreamsGroupMemberMetadataKey:
    """Identifies a member."""

    group_id: string
    member_id: string


@struct
class Endpoint:
    """The address at which a client answers interactive queries."""

    host: string
    port: uint16


@struct
class KeyValue:
    """A tag of a client."""

    key: string
    value: string


@message(versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """A member and its process."""

    instance_id: string | None
    rack_id: string | None
    client_id: string
    client_host: string
    rebalance_timeout_ms: int32 = field(default=-1)
    topology_epoch: int32
    process_id: string
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue]


@message(versions="20", flexible="none")
class StreamsGroupTargetAssignmentMetadataKey:
    """Identifies a group."""

    group_id: string


@message(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """The group epoch for which the target assignment was computed, and the time (KIP-1263)."""

    assignment_epoch: int32
    assignment_timestamp: int64 = field(tag=0)


@message(versions="21", flexible="none")
class StreamsGroupTargetAssignmentMemberKey:
    """Identifies a member."""

    group_id: string
    member_id: string


@struct
class TargetTaskIds:
    """Tasks of one subtopology."""

    subtopology_id: string
    partitions: list[int32]


@message(versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """The tasks of a member in the target assignment."""

    active_tasks: list[TargetTaskIds]
    standby_tasks: list[TargetTaskIds]
    warmup_tasks: list[TargetTaskIds]


@message(versions="22", flexible="none")
class StreamsGroupCurrentMemberAssignmentKey:
    """Identifies a member."""

    group_id: string
    member_id: string


@struct
class TaskIds:
    """Tasks of one subtopology; active ones with the epochs at which they were assigned."""

    subtopology_id: string
    partitions: list[int32]
    assignment_epochs: list[int32] | None = field(tag=0)


@message(versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """The current tasks of a member, and those that it must give up."""

    member_epoch: int32
    previous_member_epoch: int32
    state: int8
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]
    active_tasks_pending_revocation: list[TaskIds]
    standby_tasks_pending_revocation: list[TaskIds]
    warmup_tasks_pending_revocation: list[TaskIds]


@message(versions="23", flexible="none")
class StreamsGroupTopologyKey:
    """Identifies a group."""

    group_id: string


@struct
class TopicConfig:
    """A setting of a topic."""

    key: string
    value: string


@struct
class TopicInfo:
    """An internal topic; 0 partitions or replicas leave the number to the coordinator."""

    name: string
    partitions: int32
    replication_factor: int16
    topic_configs: list[TopicConfig]


@struct
class CopartitionGroup:
    """Topics with equal numbers of partitions, as indexes of the lists of their subtopology."""

    source_topics: list[int16]
    source_topic_regex: list[int16]
    repartition_source_topics: list[int16]


@struct
class Subtopology:
    """A part of the application that runs as one task for each partition."""

    subtopology_id: string
    source_topics: list[string]
    source_topic_regex: list[string]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[string]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


@message(versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """The topology of an application."""

    epoch: int32
    subtopologies: list[Subtopology]
