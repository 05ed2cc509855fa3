"""DeleteShareGroupOffsets (92): delete offsets of a share group that has no members (KIP-932)."""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, string, uuid


@struct
class DeleteShareGroupOffsetsRequestTopic:
    """A topic."""

    topic_name: string


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    """Names topics of one group."""

    group_id: string
    topics: list[DeleteShareGroupOffsetsRequestTopic]


@struct
class DeleteShareGroupOffsetsResponseTopic:
    """Whether one topic's offsets are deleted."""

    topic_name: string = field()
    topic_id: uuid = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)


@message(key=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """Whether each topic's offsets are deleted."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    error_message: string | None = field(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field()
