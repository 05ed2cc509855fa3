"""ReadShareGroupStateSummary (87): read the position of a share-partition (KIP-932).

Between brokers: the group's coordinator sends it to the state's coordinator. Version 1 adds the
count of deliveries that are complete (KIP-1226).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string, uuid


@struct
class PartitionData:
    """A partition, and the epoch of its leader, -1 when it does not matter."""

    partition: int32
    leader_epoch: int32


@struct
class ReadStateSummaryData:
    """The partitions of one topic."""

    topic_id: uuid
    partitions: list[PartitionData]


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    """Names partitions of one group."""

    group_id: string
    topics: list[ReadStateSummaryData]


@struct
class PartitionResult:
    """The position of one partition; a start of -1 is not known yet."""

    partition: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    state_epoch: int32 = field()
    leader_epoch: int32 = field()
    start_offset: int64 = field()
    delivery_complete_count: int32 = field("1+", default=-1)


@struct
class ReadStateSummaryResult:
    """The partitions of one topic."""

    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


@message(key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    """The position of each partition."""

    results: list[ReadStateSummaryResult] = field()
