"""The topics as seen by a group's machine, with a cache of their hashes.

A group is notified when topics that it reads have changed; until then the cached hashes are valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from odradek.broker.groups.modern.hashing import group_hash, topic_hash


class TopicView(Protocol):
    """The topics that exist."""

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""

    def version(self) -> int:
        """Return a number that grows when topics are created."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None when no topic has this id."""

    def id_of(self, name: str) -> bytes | None:
        """Return the id of a topic, None when no topic has this name."""

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic, 0 when no topic has this name."""

    def racks(self, name: str) -> Sequence[Sequence[str]]:
        """Return the racks of the replicas of each partition of a topic."""


class _NoTopics:
    """An empty set of topics, for a machine whose groups read none."""

    def names(self) -> Iterable[str]:
        return ()

    def version(self) -> int:
        return 0

    def name_of(self, topic_id: bytes) -> str | None:
        return None

    def id_of(self, name: str) -> bytes | None:
        return None

    def partition_count(self, name: str) -> int:
        return 0

    def racks(self, name: str) -> Sequence[Sequence[str]]:
        return ()


NO_TOPICS: TopicView = _NoTopics()


class TopicHashes:
    """Owns the hashes of the topics that groups read."""

    __slots__ = ("_hashes", "_topics")

    def __init__(self, topics: TopicView) -> None:
        self._topics = topics
        self._hashes: dict[str, int] = {}

    def of_group(self, names: Iterable[str]) -> int:
        """Hash the topics that a group reads; topics that do not exist are left out."""
        return group_hash((name, self._of(name)) for name in names if self._topics.id_of(name))

    def forget(self, name: str) -> None:
        """Drop the hash of a topic that has changed."""
        self._hashes.pop(name, None)

    def _of(self, name: str) -> int:
        known = self._hashes.get(name)
        if known is None:
            topic_id = self._topics.id_of(name)
            assert topic_id is not None
            known = topic_hash(topic_id, name, self._topics.racks(name))
            self._hashes[name] = known
        return known
