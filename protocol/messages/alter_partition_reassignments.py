"""AlterPartitionReassignments (45): have other brokers hold partitions, or stop it (KIP-455).

Version notes: 1 may forbid that the number of replicas changes (KIP-860).
"""

from __future__ import annotations

from protocol.schema import field, message, struct
from protocol.wire import boolean, int16, int32, string


@struct
class ReassignablePartition:
    """A partition and the brokers that shall hold it; null stops what is going on."""

    partition_index: int32
    replicas: list[int32] | None = field(default=None)


@struct
class ReassignableTopic:
    """Partitions of a topic."""

    name: string
    partitions: list[ReassignablePartition]


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """Where partitions shall be."""

    timeout_ms: int32 = field(default=60_000)
    allow_replication_factor_change: boolean = field("1+", default=True)
    topics: list[ReassignableTopic]


@struct
class ReassignablePartitionResponse:
    """What became of one partition."""

    partition_index: int32
    error_code: int16
    error_message: string | None


@struct
class ReassignableTopicResponse:
    """What became of the partitions of one topic."""

    name: string
    partitions: list[ReassignablePartitionResponse]


@message(key=45, versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """What became of each partition."""

    throttle_time_ms: int32 = field()
    allow_replication_factor_change: boolean = field("1+", default=True)
    error_code: int16 = field()
    error_message: string | None
    responses: list[ReassignableTopicResponse]
