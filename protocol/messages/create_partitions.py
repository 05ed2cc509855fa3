"""CreatePartitions (37): give topics more partitions.

Version notes: 2 is flexible; 3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import boolean, int16, int32, string


@struct
class CreatePartitionsAssignment:
    """The brokers that will hold one new partition."""

    broker_ids: list[int32]


@struct
class CreatePartitionsTopic:
    """A topic and its new total number of partitions."""

    name: string
    count: int32
    assignments: list[CreatePartitionsAssignment] | None


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """Topics to enlarge."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: int32
    validate_only: boolean


@struct
class CreatePartitionsTopicResult:
    """Whether one topic has its new partitions."""

    name: string
    error_code: int16 = field()
    error_message: string | None = field(default=None)


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """The result for each topic."""

    throttle_time_ms: int32 = field()
    results: list[CreatePartitionsTopicResult]
