"""StreamsGroupDescribe (89): state, topology and members of streams groups (KIP-1071).
"""

from __future__ import annotations

from odradek.protocol.messages import AUTHORIZED_OPERATIONS_OMITTED
from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, int64, string, uint16


@message(key=89, versions="0", flexible="0+")
class StreamsGroupDescribeRequest:
    """Names the groups."""

    group_ids: list[string]
    include_authorized_operations: boolean = field()


@struct
class KeyValue:
    """A setting, or a tag of a client."""

    key: string
    value: string


@struct
class TopicInfo:
    """An internal topic; 0 partitions or replicas leave the number to the coordinator."""

    name: string
    partitions: int32
    replication_factor: int16
    topic_configs: list[KeyValue]


@struct
class Subtopology:
    """A part of the application that runs as one task for each partition."""

    subtopology_id: string
    source_topics: list[string]
    repartition_sink_topics: list[string]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


@struct
class Topology:
    """The parts of an application; the numbers of partitions are 0 until they are known."""

    epoch: int32
    subtopologies: list[Subtopology] | None = field(default=None)


@struct
class Endpoint:
    """The address at which a client answers interactive queries."""

    host: string
    port: uint16


@struct
class TaskOffset:
    """The place of a task in its changelog."""

    subtopology_id: string
    partition: int32
    offset: int64


@struct
class TaskIds:
    """Tasks of one subtopology."""

    subtopology_id: string
    partitions: list[int32]


@struct
class Assignment:
    """Tasks of a member."""

    active_tasks: list[TaskIds] = field()
    standby_tasks: list[TaskIds] = field()
    warmup_tasks: list[TaskIds] = field()


@struct
class Member:
    """A member."""

    member_id: string
    member_epoch: int32
    instance_id: string | None = field(default=None)
    rack_id: string | None = field(default=None)
    client_id: string
    client_host: string
    topology_epoch: int32
    process_id: string
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset] = field()
    task_end_offsets: list[TaskOffset] = field()
    assignment: Assignment
    target_assignment: Assignment
    is_classic: boolean = field()


@struct
class DescribedGroup:
    """A group."""

    error_code: int16 = field()
    error_message: string | None = field(default=None)
    group_id: string
    group_state: string = field()
    group_epoch: int32 = field()
    assignment_epoch: int32 = field()
    topology: Topology | None = field(default=None)
    members: list[Member] = field()
    authorized_operations: int32 = field(default=AUTHORIZED_OPERATIONS_OMITTED)


@message(key=89, versions="0", flexible="0+")
class StreamsGroupDescribeResponse:
    """The groups."""

    throttle_time_ms: int32 = field()
    groups: list[DescribedGroup]
