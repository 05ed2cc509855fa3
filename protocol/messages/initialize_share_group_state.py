"""InitializeShareGroupState (83): create the state of a share-partition (KIP-932).

Between brokers: the group's coordinator sends it to the coordinator of the state.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, int64, string, uuid


@struct
class PartitionData:
    """A partition and its start; -1 leaves the start to the first fetch."""

    partition: int32
    state_epoch: int32
    start_offset: int64


@struct
class InitializeStateData:
    """The partitions of one topic."""

    topic_id: uuid
    partitions: list[PartitionData]


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateRequest:
    """Names partitions of one group."""

    group_id: string
    topics: list[InitializeStateData]


@struct
class PartitionResult:
    """Whether one partition's state is created."""

    partition: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)


@struct
class InitializeStateResult:
    """The partitions of one topic."""

    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


@message(key=83, versions="0", flexible="0+")
class InitializeShareGroupStateResponse:
    """Whether each state is created."""

    results: list[InitializeStateResult] = field()
