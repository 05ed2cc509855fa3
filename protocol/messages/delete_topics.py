"""DeleteTopics (20): delete topics with all of their records.

Version notes: 4 is flexible; 5 adds error messages, and may answer THROTTLING_QUOTA_EXCEEDED
(KIP-599); 6 can name topics by id (KIP-516).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int16, int32, string, uuid


@struct
class DeleteTopicState:
    """A topic, by name or, with a null name, by id."""

    name: string | None = field("6+", default=None)
    topic_id: uuid = field("6+")


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest:
    """Topics to delete: up to version 5 by name in topic_names, then in topics."""

    topics: list[DeleteTopicState] = field("6+")
    topic_names: list[string] = field("0-5")
    timeout_ms: int32


@struct
class DeletableTopicResult:
    """Whether one topic is deleted."""

    name: string | None = field(nullable="6+")
    topic_id: uuid = field("6+")
    error_code: int16 = field()
    error_message: string | None = field("5+", default=None)


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """The result for each topic."""

    throttle_time_ms: int32 = field("1+")
    responses: list[DeletableTopicResult]
