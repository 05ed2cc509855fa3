"""Steps of a client at a broker that may need a moment before it is ready for them."""

from __future__ import annotations

from typing import Any, Protocol

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.wire import ZERO_UUID
from tests.support.requests import creating, describing
from tests.support.waiting import wait_until

GROUP, TRANSACTION, SHARE = range(3)


class Asks(Protocol):
    """A connection to a broker."""

    def ask(self, request: Any, version: int) -> Any:
        """Send a request at a version, and return the response."""


def create_topics(
    peer: Asks, *topics: CreatableTopic | str, version: int = 7
) -> dict[str, bytes]:
    """Create topics, and return their ids; they may not be there yet."""
    answer = peer.ask(creating(*topics), version)
    assert not [one for one in answer.topics if one.error_code], answer
    return {one.name: one.topic_id for one in answer.topics}


def delete_topics(peer: Asks, *names: str) -> None:
    """Delete topics, and wait until they are gone."""
    topics = [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names]
    request = DeleteTopicsRequest(topics=topics, topic_names=[], timeout_ms=30_000)
    answer = peer.ask(request, 6)
    assert not [one for one in answer.responses if one.error_code], answer
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait_until(
        lambda: all(one.error_code == unknown for one in peer.ask(describing(*names), 12).topics),
        f"{', '.join(names)} are gone",
    )


def await_topic(peer: Asks, name: str) -> Any:
    """Wait until all partitions of a topic have leaders; return its metadata."""

    def topic() -> Any:
        (found,) = peer.ask(describing(name), 12).topics
        return None if any(one.error_code for one in (found, *found.partitions)) else found

    return wait_until(topic, f"{name} is there")


def await_coordinator(peer: Asks, kind: int, *keys: str) -> None:
    """Wait until keys have a coordinator: the first to ask has its topic created."""
    finding = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
    wait_until(
        lambda: not any(one.error_code for one in peer.ask(finding, 6).coordinators),
        f"{', '.join(keys)} of kind {kind} has a coordinator",
    )
