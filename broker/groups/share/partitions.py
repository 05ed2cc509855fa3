"""The partitions of a share group that have state, and those that are about to get or lose it.

State begins before a partition is assigned to a member: first the intention is noted here, then
the coordinator of the state begins the state, then the success is noted. A topic loses its state
in the same way: intention, deletion, success.

    initializing -> initialized -> deleting -> (forgotten)

Kafka's source: ShareGroup.ShareGroupStatePartitionMetadataInfo and its callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace

from odradek.broker.groups.modern.tables import Table, in_map_order
from odradek.broker.orders.java import int_hash
from odradek.dataclass import dataclass
from odradek.protocol.messages.share_group_metadata import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)

UNKNOWN_NAME = "<UNKNOWN>"
LONG_AGO_MS = 0


@dataclass(frozen=True, slots=True)
class Begun:
    """Partitions of a topic, and the time when they were noted."""

    name: str
    partitions: frozenset[int]
    noted_ms: int


Topics = Mapping[bytes, Begun]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The partitions of one group by topic id; a change replaces it as a whole."""

    initializing: Topics = field(default_factory=dict)
    initialized: Topics = field(default_factory=dict)
    deleting: frozenset[bytes] = frozenset()

    def known(self, now_ms: int, retry_ms: int) -> Topics:
        """Return the partitions with state, or with a recent attempt to begin it."""
        tried = {
            topic_id: one
            for topic_id, one in self.initializing.items()
            if now_ms - one.noted_ms < retry_ms
        }
        return combined(self.initialized, tried)

    def begin(self, topics: Topics) -> StatePartitions:
        """Note that state of partitions is about to begin."""
        initializing = combined(self.initializing, topics)
        return replace(
            self, initializing=initializing, deleting=self.deleting - initializing.keys()
        )

    def begun(self, topics: Topics) -> StatePartitions:
        """Note that partitions have state now."""
        return StatePartitions(
            without(self.initializing, _numbers(topics)),
            combined(self.initialized, topics),
            self.deleting,
        )

    def not_begun(self, topics: Mapping[bytes, Iterable[int]]) -> StatePartitions:
        """Note that the state of partitions could not begin."""
        return replace(self, initializing=without(self.initializing, topics))

    def without_topics(self, topic_ids: frozenset[bytes]) -> StatePartitions:
        """Remove deleted topics."""
        return StatePartitions(
            {one: begun for one, begun in self.initializing.items() if one not in topic_ids},
            {one: begun for one, begun in self.initialized.items() if one not in topic_ids},
            self.deleting - topic_ids,
        )

    def stored(
        self, name_of: Callable[[bytes], str | None]
    ) -> ShareGroupStatePartitionMetadataValue:
        """Return the record of the partitions."""
        return ShareGroupStatePartitionMetadataValue(
            initializing_topics=_as_stored(self.initializing),
            initialized_topics=_as_stored(self.initialized),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name_of(topic_id) or UNKNOWN_NAME)
                for topic_id in in_map_order(sorted(self.deleting))
            ],
        )

    @staticmethod
    def read(value: ShareGroupStatePartitionMetadataValue, now_ms: int) -> StatePartitions:
        """Read the partitions from a record."""
        return StatePartitions(
            _read(value.initializing_topics, now_ms),
            _read(value.initialized_topics, now_ms),
            frozenset(one.topic_id for one in value.deleting_topics),
        )


def combined(former: Topics, latter: Topics) -> Topics:
    """Combine partitions; a topic in both has the name and time of the latter."""
    both = dict(former)
    for topic_id, one in latter.items():
        known = former.get(topic_id)
        if known is not None:
            one = replace(one, partitions=known.partitions | one.partitions)
        both[topic_id] = one
    return both


def without(topics: Topics, gone: Mapping[bytes, Iterable[int]]) -> Topics:
    """Remove partitions, and topics that have none left."""
    left = {}
    for topic_id, one in topics.items():
        partitions = one.partitions - set(gone.get(topic_id, ()))
        if partitions or topic_id not in gone:
            left[topic_id] = replace(one, partitions=partitions)
    return left


def in_order(partitions: Iterable[int]) -> list[int]:
    """Return partitions in the order of a HashSet."""
    return list(Table.copy_of(sorted(partitions), int_hash))


def _numbers(topics: Topics) -> Mapping[bytes, frozenset[int]]:
    return {topic_id: one.partitions for topic_id, one in topics.items()}


def _as_stored(topics: Topics) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(
            topic_id=topic_id,
            topic_name=topics[topic_id].name,
            partitions=in_order(topics[topic_id].partitions),
        )
        for topic_id in in_map_order(topics)
    ]


def _read(stored: Iterable[TopicPartitionsInfo], now_ms: int) -> Topics:
    return {
        one.topic_id: Begun(one.topic_name, frozenset(one.partitions), now_ms) for one in stored
    }
