"""The order in which Kafka goes through the names of all its topics.

Its image of the topics is a tree by the hashes of their names; of one hash, the name that came
last is the first. For Metadata of all topics it puts those that the client may describe into a set
of Scala's (KafkaApis.handleTopicMetadataRequest), whose order is kept here until a name comes or
goes, for thousands of topics take long to order. That is done in one piece: names may come and go
whenever a request stands still.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker.orders.java import string_hash
from broker.orders.scala import table_order, trie_order
from protocol.pacing import unpaced


class TopicOrder:
    """The names of the topics there are; owned by what knows the topics."""

    def __init__(self) -> None:
        # By name its hash, once it has been asked for.
        self._hashes: dict[str, int | None] = {}
        self._image: Sequence[str] | None = None
        self._all: Sequence[str] | None = None
        self._trie: Sequence[str] | None = None

    def add(self, name: str) -> None:
        """Note a name, which may be known."""
        if name not in self._hashes:
            self._hashes[name] = None
            self._image = self._all = self._trie = None

    def remove(self, name: str) -> None:
        """Forget a name."""
        del self._hashes[name]
        self._image = self._all = self._trie = None

    def image(self) -> Sequence[str]:
        """Return all names in the order of the image."""
        if self._image is None:
            newest_first = list(reversed(self._hashes))
            self._image = sorted(newest_first, key=self._hash_of)
        return self._image

    def described(self, names: Collection[str] | None = None) -> Sequence[str]:
        """Return all names, or those of them that are given, in the order of Metadata of all."""
        if self._all is None:
            self._all = table_order(self.image(), self._hash_of, unpaced)
        if names is None or len(names) == len(self._all):
            return self._all
        some = (one for one in self.image() if one in names)
        return table_order(some, self._hash_of, unpaced)

    def grouped(self) -> Sequence[str]:
        """Return all names in the order in which Kafka has what it has grouped by topic."""
        if self._trie is None:
            self._trie = trie_order(self._hashes, self._hash_of, unpaced)
        return self._trie

    def _hash_of(self, name: str) -> int:
        value = self._hashes[name]
        if value is None:
            value = self._hashes[name] = string_hash(name)
        return value
