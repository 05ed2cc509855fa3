"""OffsetDelete (47): remove offsets that a group has stored (KIP-496)."""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, string


@struct
class OffsetDeleteRequestPartition:
    """A partition whose offset to delete."""

    partition_index: int32


@struct
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: string
    partitions: list[OffsetDeleteRequestPartition]


@message(key=47, versions="0", flexible="none")
class OffsetDeleteRequest:
    """Names the offsets of one group."""

    group_id: string
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    """Whether one offset is deleted; a missing one counts as deleted."""

    partition_index: int32
    error_code: int16 = field()


@struct
class OffsetDeleteResponseTopic:
    """Whether the offsets of one topic are deleted."""

    name: string
    partitions: list[OffsetDeleteResponsePartition]


@message(key=47, versions="0", flexible="none")
class OffsetDeleteResponse:
    """Whether each offset is deleted; a response with a top-level error has no topics."""

    error_code: int16 = field()
    throttle_time_ms: int32 = field()
    topics: list[OffsetDeleteResponseTopic] = field()
