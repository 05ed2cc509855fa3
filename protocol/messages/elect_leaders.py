"""ElectLeaders (43): make the preferred replica, or any, lead a partition (KIP-460).

Version notes: 1 knows two types of election, and an error code for all; 2 is flexible.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, string


@struct
class TopicPartitions:
    """Partitions of a topic."""

    topic: string
    partitions: list[int32]


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Partitions that need a leader, or null for all; type 0 is preferred, 1 is unclean."""

    election_type: int8 = field("1+")
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: int32 = field(default=60_000)


@struct
class PartitionResult:
    """The result for one partition."""

    partition_id: int32
    error_code: int16
    error_message: string | None


@struct
class ReplicaElectionResult:
    """The result for the partitions of one topic."""

    topic: string
    partition_result: list[PartitionResult]


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """The result for each partition; if all were named, only for those with an election."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field("1+")
    replica_election_results: list[ReplicaElectionResult]
