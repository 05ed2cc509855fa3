"""StreamsGroupHeartbeat (88): join, stay in and leave a streams group (KIP-1071).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int8, int16, int32, int64, string, uint16


@struct
class KeyValue:
    """A setting, or a tag of a client."""

    key: string = field()
    value: string = field()


@struct
class TopicInfo:
    """An internal topic; 0 partitions or replicas leave the number to the coordinator."""

    name: string = field()
    partitions: int32 = field()
    replication_factor: int16 = field()
    topic_configs: list[KeyValue] = field()


@struct
class CopartitionGroup:
    """Topics with equal numbers of partitions, as indexes of the lists of their subtopology."""

    source_topics: list[int16] = field()
    source_topic_regex: list[int16] = field()
    repartition_source_topics: list[int16] = field()


@struct
class Subtopology:
    """A part of the application that runs as one task for each partition."""

    subtopology_id: string = field()
    source_topics: list[string] = field()
    source_topic_regex: list[string] = field()
    state_changelog_topics: list[TopicInfo] = field()
    repartition_sink_topics: list[string] = field()
    repartition_source_topics: list[TopicInfo] = field()
    copartition_groups: list[CopartitionGroup] = field()


@struct
class Topology:
    """The parts of an application and their topics."""

    epoch: int32 = field()
    subtopologies: list[Subtopology] = field()


@struct
class TaskIds:
    """Tasks of one subtopology."""

    subtopology_id: string = field()
    partitions: list[int32] = field()


@struct
class Endpoint:
    """The address at which a client answers interactive queries."""

    host: string = field()
    port: uint16 = field()


@struct
class TaskOffset:
    """The place of a task in its changelog."""

    subtopology_id: string = field()
    partition: int32 = field()
    offset: int64 = field()


@message(key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatRequest:
    """Epoch 0 joins, -1 leaves; a field without changes is null."""

    group_id: string = field()
    member_id: string = field()
    member_epoch: int32 = field()
    endpoint_information_epoch: int32 = field()
    instance_id: string | None = field(default=None)
    rack_id: string | None = field(default=None)
    rebalance_timeout_ms: int32 = field(default=-1)
    topology: Topology | None = field(default=None)
    active_tasks: list[TaskIds] | None = field(default=None)
    standby_tasks: list[TaskIds] | None = field(default=None)
    warmup_tasks: list[TaskIds] | None = field(default=None)
    process_id: string | None = field(default=None)
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue] | None = field(default=None)
    task_offsets: list[TaskOffset] | None = field(default=None)
    task_end_offsets: list[TaskOffset] | None = field(default=None)
    shutdown_application: boolean = field()


@struct
class Status:
    """A condition of the group that its members should know."""

    status_code: int8 = field()
    status_detail: string = field()


@struct
class TopicPartition:
    """Partitions of a topic."""

    topic: string = field()
    partitions: list[int32] = field()


@struct
class EndpointToPartitions:
    """The partitions whose state a client can be asked for."""

    user_endpoint: Endpoint = field()
    active_partitions: list[TopicPartition] = field()
    standby_partitions: list[TopicPartition] = field()


@message(key=88, versions="0", flexible="0+")
class StreamsGroupHeartbeatResponse:
    """Tasks, and the partitions of endpoints, are null where they have not changed."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    member_id: string = field()
    member_epoch: int32 = field()
    heartbeat_interval_ms: int32 = field()
    acceptable_recovery_lag: int32 = field()
    task_offset_interval_ms: int32 = field()
    status: list[Status] | None = field()
    active_tasks: list[TaskIds] | None = field(default=None)
    standby_tasks: list[TaskIds] | None = field(default=None)
    warmup_tasks: list[TaskIds] | None = field(default=None)
    endpoint_information_epoch: int32 = field()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(default=None)
