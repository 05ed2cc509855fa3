"""The view of topics that the coordinators of groups use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.broker.metadata.members import Brokers
from odradek.broker.metadata.store import MetadataStore
from odradek.broker.topics.registry import Topics


class TopicLookup:
    """The present topics, and the racks of their replicas."""

    def __init__(self, topics: Topics, store: MetadataStore, brokers: Brokers) -> None:
        self._topics, self._store, self._brokers = topics, store, brokers

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return [topic.name for topic in self._topics]

    def version(self) -> int:
        """Return a number that grows when topics are created."""
        return self._store.revision

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic of an id, None when there is no such topic."""
        topic = self._topics.by_id(topic_id)
        return topic.name if topic else None

    def id_of(self, name: str) -> bytes | None:
        """Return the id of the topic of a name, None when there is no such topic."""
        topic = self._topics.get(name)
        return topic.topic_id if topic else None

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic, 0 when there is no such topic."""
        topic = self._topics.get(name)
        return len(topic.partitions) if topic else 0

    def racks(self, name: str) -> Sequence[Sequence[str]]:
        """Return the racks of each partition of a topic: that of its broker.

        Any broker serves consumers of a shared partition.
        """
        topic = self._topics.get(name)
        if topic is None:
            return []
        own = _listed(self._brokers.own.rack)
        if not topic.record.leaders:
            return [own] * len(topic.partitions)
        racks = {one.node_id: _listed(one.rack) for one in self._brokers}
        everywhere = sorted(self._brokers.racks)
        return [
            everywhere if one.is_shared else racks.get(one.replica, [])
            for one in topic.record.leaders
        ]


def _listed(rack: str | None) -> Sequence[str]:
    return [rack] if rack else []
