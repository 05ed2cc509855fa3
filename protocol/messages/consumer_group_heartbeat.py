"""ConsumerGroupHeartbeat (68): join, stay in, or leave a consumer group (KIP-848).

Version notes: 1 adds regular expressions, and members generate their own ids (KIP-1082).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, string, uuid


@struct
class TopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid
    partitions: list[int32]


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """Epoch 0 joins, -1 leaves, -2 leaves as a static member that will return.

    A field that is null (or -1) has not changed since the last heartbeat.
    """

    group_id: string
    member_id: string
    member_epoch: int32
    instance_id: string | None = field(default=None)
    rack_id: string | None = field(default=None)
    rebalance_timeout_ms: int32 = field(default=-1)
    subscribed_topic_names: list[string] | None = field(default=None)
    subscribed_topic_regex: string | None = field("1+", default=None)
    server_assignor: string | None = field(default=None)
    topic_partitions: list[TopicPartitions] | None = field(default=None)


@struct
class Assignment:
    """The partitions that the member may read at once."""

    topic_partitions: list[TopicPartitions] = field()


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """The assignment is null when it has not changed."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    member_id: string | None = field(default=None)
    member_epoch: int32 = field()
    heartbeat_interval_ms: int32 = field()
    assignment: Assignment | None = field(default=None)
