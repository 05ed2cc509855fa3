"""DescribeQuorum (55): the leader, the voters and the observers of the metadata log (KIP-595).

Version notes: 1 adds the times when each replica last fetched and was caught up (KIP-836); 2 adds
error messages, directory ids and the endpoints of the controllers (KIP-853).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string, uint16, uuid


@struct
class RequestedPartitionData:
    """A partition to describe."""

    partition_index: int32


@struct
class RequestedTopicData:
    """A topic and its partitions to describe."""

    topic_name: string
    partitions: list[RequestedPartitionData]


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    """Only the metadata log, partition 0 of __cluster_metadata, has a quorum."""

    topics: list[RequestedTopicData]


@struct
class ReplicaState:
    """A replica of the metadata log, and its progress."""

    replica_id: int32
    replica_directory_id: uuid = field("2+")
    log_end_offset: int64
    last_fetch_timestamp: int64 = field("1+", default=-1)
    last_caught_up_timestamp: int64 = field("1+", default=-1)


@struct
class PartitionData:
    """The state of the log."""

    partition_index: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field("2+")
    leader_id: int32 = field()
    leader_epoch: int32 = field()
    high_watermark: int64 = field()
    current_voters: list[ReplicaState] = field()
    observers: list[ReplicaState] = field()


@struct
class TopicData:
    """The answer for a topic."""

    topic_name: string
    partitions: list[PartitionData]


@struct
class Listener:
    """An address at which a controller listens."""

    name: string = field("2+")
    host: string = field("2+")
    port: uint16 = field("2+")


@struct
class Node:
    """A controller."""

    node_id: int32 = field("2+")
    listeners: list[Listener] = field("2+")


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """The quorum."""

    error_code: int16 = field()
    error_message: string | None = field("2+")
    topics: list[TopicData]
    nodes: list[Node] = field("2+")
