"""The topics of a soak: they are full soon, and then lose as much as they get."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import NewTopic

EVENTS, STATE, LOCAL = "events", "state", "local"
# The share of the records that each topic gets.
SHARES: Mapping[str, float] = {EVENTS: 0.6, STATE: 0.3, LOCAL: 0.1}
# So many keys has each topic at most.
KEYS = 20_000
_SEGMENTS = {"internal.segment.bytes": str(4 << 20), "file.delete.delay.ms": "10000"}
_SMALL = {**_SEGMENTS, "retention.bytes": str(16 << 20)}
_COMPACT = {**_SEGMENTS, "cleanup.policy": "compact", "delete.retention.ms": "10000"}


def created() -> list[NewTopic]:
    """Return the requests for the topics that are there all the time."""
    return [
        NewTopic(EVENTS, 12, 1, config=_SMALL),
        NewTopic(STATE, 6, 1, config=_COMPACT),
        NewTopic(LOCAL, 3, 1, config={**_COMPACT, "odradek.storage": "local"}),
    ]


def passing(number: int) -> NewTopic:
    """Return the request for a topic that is there for a round."""
    return NewTopic(f"passing-{number}", 10, 1, config=_SMALL)
