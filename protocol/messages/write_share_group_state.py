"""WriteShareGroupState (85): store the changes of a share-partition (KIP-932).

Between brokers: the leader of the partition sends it to the coordinator of the state. Version 1
adds the count of deliveries that are complete (KIP-1226).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, int64, string, uuid


@struct
class StateBatch:
    """Offsets in one state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int64
    last_offset: int64
    delivery_state: int8
    delivery_count: int16


@struct
class PartitionData:
    """The changes in one partition; a start of -1 means no change of the start."""

    partition: int32
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field("1+", default=-1)
    state_batches: list[StateBatch]


@struct
class WriteStateData:
    """The partitions of one topic."""

    topic_id: uuid
    partitions: list[PartitionData]


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    """Names partitions of one group."""

    group_id: string
    topics: list[WriteStateData]


@struct
class PartitionResult:
    """Whether one change is stored."""

    partition: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)


@struct
class WriteStateResult:
    """The partitions of one topic."""

    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


@message(key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    """Whether each change is stored."""

    results: list[WriteStateResult] = field()
