"""A draft of a target assignment: the partitions of each member, in Java's order."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.groups.modern.spec import Assignment
from odradek.broker.groups.modern.tables import Table, in_set_order
from odradek.broker.orders.hash_map import HashMapKeys
from odradek.broker.orders.java import int_hash, uuid_hash

_PLACES = 16


class Draft:
    """The assignment of one member, copied only when it is changed, as in Kafka."""

    __slots__ = ("_given", "_order", "_topics")

    def __init__(self, given: Assignment) -> None:
        self._given = given
        self._topics: dict[bytes, Table[int]] | None = None
        self._order: HashMapKeys[bytes] = HashMapKeys(uuid_hash, len(given))

    def add(self, topic_id: bytes, partition: int, *, capacity: int = _PLACES) -> None:
        """Add a partition; a new table for its topic is created with `capacity`."""
        topics = self._copied()
        if topic_id not in topics:
            topics[topic_id] = Table(int_hash, capacity=capacity)
        self._order.compute(topic_id)
        topics[topic_id].add(partition)

    def remove(self, topic_id: bytes, partition: int) -> None:
        """Remove a partition."""
        topics = self._copied()
        topics[topic_id].discard(partition)
        if not topics[topic_id]:
            self.remove_topic(topic_id)

    def remove_topic(self, topic_id: bytes) -> None:
        """Remove a topic."""
        self._copied().pop(topic_id, None)
        self._order.remove(topic_id)

    def done(self) -> Assignment:
        """Return the resulting assignment."""
        if self._topics is None:
            return self._given
        return {topic_id: tuple(self._topics[topic_id]) for topic_id in self._order}

    def _copied(self) -> dict[bytes, Table[int]]:
        if self._topics is None:
            self._topics = {
                topic_id: Table.copy_of(in_set_order(partitions), int_hash)
                for topic_id, partitions in self._given.items()
            }
            for topic_id in self._given:
                self._order.put(topic_id)
        return self._topics


def finish(drafts: Mapping[str, Draft]) -> Mapping[str, Assignment]:
    """Return the resulting assignment of each member."""
    return {member_id: draft.done() for member_id, draft in drafts.items()}
