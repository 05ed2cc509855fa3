"""ConsumerGroupDescribe (69): state and members of consumer groups (KIP-848).

Version notes: 1 adds the protocol that each member speaks (KIP-1099).
"""

from __future__ import annotations

from odradek.protocol.messages import AUTHORIZED_OPERATIONS_OMITTED
from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int8, int16, int32, string, uuid


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    """Names the groups."""

    group_ids: list[string]
    include_authorized_operations: boolean


@struct
class TopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid
    topic_name: string
    partitions: list[int32]


@struct
class Assignment:
    """Partitions of a member."""

    topic_partitions: list[TopicPartitions] = field()


@struct
class Member:
    """A member; its type is 0 for the classic protocol, 1 for the consumer protocol."""

    member_id: string
    instance_id: string | None = field(default=None)
    rack_id: string | None = field(default=None)
    member_epoch: int32
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None = field(default=None)
    assignment: Assignment
    target_assignment: Assignment
    member_type: int8 = field("1+", default=-1)


@struct
class DescribedGroup:
    """A group."""

    error_code: int16 = field()
    error_message: string | None = field(default=None)
    group_id: string
    group_state: string = field()
    group_epoch: int32 = field()
    assignment_epoch: int32 = field()
    assignor_name: string = field()
    members: list[Member] = field()
    authorized_operations: int32 = field(default=AUTHORIZED_OPERATIONS_OMITTED)


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """The groups."""

    throttle_time_ms: int32 = field()
    groups: list[DescribedGroup]
