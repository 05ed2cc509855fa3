"""ListPartitionReassignments (46): which partitions move to other brokers (KIP-455)."""

from __future__ import annotations

from protocol.schema import field, message, struct
from protocol.wire import int16, int32, string


@struct
class ListPartitionReassignmentsTopics:
    """Partitions of a topic to look at."""

    name: string
    partition_indexes: list[int32]


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Partitions to look at, or null for all."""

    timeout_ms: int32 = field(default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)


@struct
class OngoingPartitionReassignment:
    """A partition on its way: who holds it, who is to, and who no longer."""

    partition_index: int32
    replicas: list[int32]
    adding_replicas: list[int32]
    removing_replicas: list[int32]


@struct
class OngoingTopicReassignment:
    """Partitions of a topic that are on their way."""

    name: string
    partitions: list[OngoingPartitionReassignment]


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """What is on its way."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None
    topics: list[OngoingTopicReassignment]
