"""ListPartitionReassignments (46): the partitions that move to other brokers (KIP-455)."""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, string


@struct
class ListPartitionReassignmentsTopics:
    """Partitions of a topic to check."""

    name: string
    partition_indexes: list[int32]


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Partitions to check, or null for all."""

    timeout_ms: int32 = field(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)


@struct
class OngoingPartitionReassignment:
    """A moving partition: its brokers, the brokers to add, the brokers to remove."""

    partition_index: int32
    replicas: list[int32]
    adding_replicas: list[int32]
    removing_replicas: list[int32]


@struct
class OngoingTopicReassignment:
    """Partitions of a topic that are moving."""

    name: string
    partitions: list[OngoingPartitionReassignment]


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The partitions that are moving."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None
    topics: list[OngoingTopicReassignment]
