"""The topics as the coordinators of groups ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from broker.metadata.store import MetadataStore
from broker.topics.registry import Topics


class TopicLookup:
    """The topics and where their replicas are, as they are now."""

    def __init__(
        self, topics: Topics, store: MetadataStore, rack: Callable[[], str | None]
    ) -> None:
        self._topics, self._store, self._rack = topics, store, rack

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return [topic.name for topic in self._topics]

    def version(self) -> int:
        """Return a number that grows when topics are created."""
        return self._store.revision

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None when there is none of this id."""
        topic = self._topics.by_id(topic_id)
        return topic.name if topic else None

    def id_of(self, name: str) -> bytes | None:
        """Return the id of a topic, None when there is none of this name."""
        topic = self._topics.get(name)
        return topic.topic_id if topic else None

    def partition_count(self, name: str) -> int:
        """Return how many partitions a topic has, 0 when there is none of this name."""
        topic = self._topics.get(name)
        return len(topic.partitions) if topic else 0

    def racks(self, name: str) -> Sequence[Sequence[str]]:
        """Return for each partition of a topic the racks that its replicas are in: this one's."""
        rack = self._rack()
        return [[rack] if rack else []] * self.partition_count(name)
