"""DeleteShareGroupState (86): delete the state of a share-partition (KIP-932).

Between brokers: the group's coordinator sends it to the coordinator of the state.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, string, uuid


@struct
class PartitionData:
    """A partition."""

    partition: int32


@struct
class DeleteStateData:
    """The partitions of one topic."""

    topic_id: uuid
    partitions: list[PartitionData]


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateRequest:
    """Names partitions of one group."""

    group_id: string
    topics: list[DeleteStateData]


@struct
class PartitionResult:
    """Whether one partition's state is deleted."""

    partition: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)


@struct
class DeleteStateResult:
    """The partitions of one topic."""

    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


@message(key=86, versions="0", flexible="0+")
class DeleteShareGroupStateResponse:
    """Whether each state is deleted."""

    results: list[DeleteStateResult] = field()
