"""ShareGroupHeartbeat (76): join, stay in and leave a share group (KIP-932).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, string, uuid


@message(key=76, versions="1", flexible="1+")
class ShareGroupHeartbeatRequest:
    """Epoch 0 joins, -1 leaves; a field without changes is null."""

    group_id: string
    member_id: string
    member_epoch: int32
    rack_id: string | None = field(default=None)
    subscribed_topic_names: list[string] | None = field(default=None)


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: uuid = field()
    partitions: list[int32] = field()


@struct
class Assignment:
    """The partitions that a member may fetch."""

    topic_partitions: list[TopicPartitions] = field()


@message(key=76, versions="1", flexible="1+")
class ShareGroupHeartbeatResponse:
    """The assignment is null where it has not changed."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    member_id: string | None = field(default=None)
    member_epoch: int32 = field()
    heartbeat_interval_ms: int32 = field()
    assignment: Assignment | None = field(default=None)
