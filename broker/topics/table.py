"""The topics as requests look them up: by name or id to partitions and settings.

Invariants:

1. A topic is in all tables, or in none; a change replaces the whole topic.
2. `generation` grows with each change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from odradek.broker.orders.topics import TopicOrder
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.states import OfflinePartition, Partition
from odradek.broker.topics.topic import Topic
from odradek.storage.log import Log


class TopicTable:
    """The present topics, in memory; only `Topics`, which extends it, changes them."""

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._names_by_collision_key: dict[str, str] = {}
        self.order = TopicOrder()
        # A number that changes with the topics, for callers that keep the topics they looked up.
        self.generation = 0

    def get(self, name: str) -> Topic | None:
        """Return a topic by its name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """Return a topic by its id."""
        return self._by_id.get(topic_id)

    def serves(self, log: Log) -> bool:
        """Return whether requests find a log."""
        topic = self._by_id.get(log.topic_id)
        return topic is not None and topic.partitions[log.partition] is log

    def __iter__(self) -> Iterator[Topic]:
        """Iterate over the topics as they are now."""
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        """Return the number of topics."""
        return len(self._by_name)

    def offline(self) -> list[OfflinePartition]:
        """Return the partitions that cannot be used for now."""
        return [
            one for topic in self for one in topic.partitions if isinstance(one, OfflinePartition)
        ]

    def _publish(self, topic: Topic) -> None:
        self.generation += 1
        self.order.add(topic.name)
        self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        self._names_by_collision_key[topic_names.collision_key(topic.name)] = topic.name

    def _withdraw(self, topic: Topic) -> None:
        self.generation += 1
        self.order.remove(topic.name)
        del self._by_name[topic.name], self._by_id[topic.topic_id]
        self._names_by_collision_key.pop(topic_names.collision_key(topic.name), None)

    def _replace(self, topic_id: bytes, partition: Partition) -> None:
        topic = self._by_id.get(topic_id)
        if topic is not None:
            partitions = list(topic.partitions)
            partitions[partition.partition] = partition
            self._publish(replace(topic, partitions=tuple(partitions)))
