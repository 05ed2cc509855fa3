"""The topics as a group's machine sees them, with the hash of each remembered.

A group is told when topics that it reads have changed; until then what it knows of them holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from broker.groups.modern.hashing import group_hash, topic_hash


class TopicView(Protocol):
    """The topics that exist."""

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""

    def version(self) -> int:
        """Return a number that grows when topics are created."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None when there is none of this id."""

    def id_of(self, name: str) -> bytes | None:
        """Return the id of a topic, None when there is none of this name."""

    def partition_count(self, name: str) -> int:
        """Return how many partitions a topic has, 0 when there is none of this name."""

    def racks(self, name: str) -> Sequence[Sequence[str]]:
        """Return for each partition of a topic the racks that its replicas are in."""


class _NoTopics:
    """No topics at all, for a machine whose groups read none."""

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
    """Owns the hashes of topics that groups have asked for."""

    __slots__ = ("_hashes", "_topics")

    def __init__(self, topics: TopicView) -> None:
        self._topics = topics
        self._hashes: dict[str, int] = {}

    def of_group(self, names: Iterable[str]) -> int:
        """Hash what a group reads; topics that do not exist do not count."""
        return group_hash((name, self._of(name)) for name in names if self._topics.id_of(name))

    def forget(self, name: str) -> None:
        """Hash a topic again when it is next asked for: it has changed."""
        self._hashes.pop(name, None)

    def _of(self, name: str) -> int:
        known = self._hashes.get(name)
        if known is None:
            topic_id = self._topics.id_of(name)
            assert topic_id is not None
            known = topic_hash(topic_id, name, self._topics.racks(name))
            self._hashes[name] = known
        return known
