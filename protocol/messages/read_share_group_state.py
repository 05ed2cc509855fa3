"""ReadShareGroupState (84): read the state of a share-partition, to continue from it (KIP-932).

Between brokers: the leader of the partition sends it to the coordinator of the state.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, int64, string, uuid


@struct
class PartitionData:
    """A partition, and the epoch of the leader that asks."""

    partition: int32
    leader_epoch: int32


@struct
class ReadStateData:
    """The partitions of one topic."""

    topic_id: uuid
    partitions: list[PartitionData]


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    """Names partitions of one group."""

    group_id: string
    topics: list[ReadStateData]


@struct
class StateBatch:
    """Offsets in one state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int64 = field()
    last_offset: int64 = field()
    delivery_state: int8 = field()
    delivery_count: int16 = field()


@struct
class PartitionResult:
    """The state of one partition."""

    partition: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    state_epoch: int32 = field()
    start_offset: int64 = field()
    state_batches: list[StateBatch] = field()


@struct
class ReadStateResult:
    """The partitions of one topic."""

    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


@message(key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    """The state of each partition."""

    results: list[ReadStateResult] = field()
