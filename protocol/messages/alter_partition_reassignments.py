"""AlterPartitionReassignments (45): move partitions to other brokers, or stop a move (KIP-455).

Version notes: 1 may forbid that the number of replicas changes (KIP-860).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, string


@struct
class ReassignablePartition:
    """A partition and the brokers that will hold it; null stops a move in progress."""

    partition_index: int32
    replicas: list[int32] | None = field(default=None)


@struct
class ReassignableTopic:
    """Partitions of a topic."""

    name: string
    partitions: list[ReassignablePartition]


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """The new places of partitions."""

    timeout_ms: int32 = field(default=60_000)
    allow_replication_factor_change: boolean = field("1+", default=True)
    topics: list[ReassignableTopic]


@struct
class ReassignablePartitionResponse:
    """The result for one partition."""

    partition_index: int32
    error_code: int16
    error_message: string | None


@struct
class ReassignableTopicResponse:
    """The result for the partitions of one topic."""

    name: string
    partitions: list[ReassignablePartitionResponse]


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """The result for each partition."""

    throttle_time_ms: int32 = field()
    allow_replication_factor_change: boolean = field("1+", default=True)
    error_code: int16 = field()
    error_message: string | None
    responses: list[ReassignableTopicResponse]
