"""DescribeTopicPartitions (75): the partitions of topics, a bounded number at a time (KIP-966)."""

from __future__ import annotations

from odradek.protocol.messages import AUTHORIZED_OPERATIONS_OMITTED
from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, string, uuid


@struct
class TopicRequest:
    """A topic to describe."""

    name: string


@struct
class Cursor:
    """The partition to continue with."""

    topic_name: string
    partition_index: int32


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """Topics to describe, or none for all, from the cursor on."""

    topics: list[TopicRequest]
    response_partition_limit: int32 = field(default=2_000)
    cursor: Cursor | None = field(default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    """A partition: its leader and replicas."""

    error_code: int16 = field()
    partition_index: int32
    leader_id: int32
    leader_epoch: int32 = field(default=-1)
    replica_nodes: list[int32]
    isr_nodes: list[int32]
    eligible_leader_replicas: list[int32] | None = field(default=None)
    last_known_elr: list[int32] | None = field(default=None)
    offline_replicas: list[int32]


@struct
class DescribeTopicPartitionsResponseTopic:
    """A topic, with as many of its partitions as the response may hold."""

    error_code: int16 = field()
    name: string | None
    topic_id: uuid
    is_internal: boolean = field(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int32 = field(default=AUTHORIZED_OPERATIONS_OMITTED)


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """Topics by name, and where to continue when topics are left."""

    throttle_time_ms: int32 = field()
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = field(default=None)
