"""ShareGroupDescribe (77): state and members of share groups (KIP-932).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, string, uuid


@message(key=77, versions="1", flexible="1+")
class ShareGroupDescribeRequest:
    """Names the groups."""

    group_ids: list[string]
    include_authorized_operations: boolean


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: uuid = field()
    topic_name: string = field()
    partitions: list[int32] = field()


@struct
class Assignment:
    """The partitions that a member may fetch."""

    topic_partitions: list[TopicPartitions] = field()


@struct
class Member:
    """A member and its partitions."""

    member_id: string = field()
    rack_id: string | None = field(default=None)
    member_epoch: int32 = field()
    client_id: string = field()
    client_host: string = field()
    subscribed_topic_names: list[string] = field()
    assignment: Assignment = field()


@struct
class DescribedGroup:
    """A group, or the reason why it is not described."""

    error_code: int16 = field()
    error_message: string | None = field(default=None)
    group_id: string = field()
    group_state: string = field()
    group_epoch: int32 = field()
    assignment_epoch: int32 = field()
    assignor_name: string = field()
    members: list[Member] = field()
    authorized_operations: int32 = field(default=-(2**31))


@message(key=77, versions="1", flexible="1+")
class ShareGroupDescribeResponse:
    """The groups, in the order of the request."""

    throttle_time_ms: int32 = field()
    groups: list[DescribedGroup] = field()
