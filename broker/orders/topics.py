"""The order in which Kafka goes through the names of all its topics.

Kafka's image of the topics is a tree by the hashes of their names; of names with the same hash,
the last to come is the first. For Metadata of all topics Kafka puts the topics that the client may
describe into a Scala set (KafkaApis.handleTopicMetadataRequest). The order of this set is kept
here until a name is added or removed, because ordering thousands of topics takes long. It is
computed without a pause: names may be added and removed whenever a request pauses.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from odradek.broker.orders.java import string_hash
from odradek.broker.orders.scala import table_order, trie_order
from odradek.protocol.pacing import unpaced


class TopicOrder:
    """The names of all topics; the registry of the topics owns it."""

    def __init__(self) -> None:
        # The hash of each name; None until it is first needed.
        self._hashes: dict[str, int | None] = {}
        self._image: Sequence[str] | None = None
        self._all: Sequence[str] | None = None
        self._trie: Sequence[str] | None = None

    def add(self, name: str) -> None:
        """Add a name, unless it is there."""
        if name not in self._hashes:
            self._hashes[name] = None
            self._image = self._all = self._trie = None

    def remove(self, name: str) -> None:
        """Remove a name."""
        del self._hashes[name]
        self._image = self._all = self._trie = None

    def image(self) -> Sequence[str]:
        """Return all names in the order of the image."""
        if self._image is None:
            newest_first = list(reversed(self._hashes))
            self._image = sorted(newest_first, key=self._hash_of)
        return self._image

    def described(self, names: Collection[str] | None = None) -> Sequence[str]:
        """Return all names, or only the given ones, in the order of Metadata of all topics."""
        if self._all is None:
            self._all = table_order(self.image(), self._hash_of, unpaced)
        if names is None or len(names) == len(self._all):
            return self._all
        some = (one for one in self.image() if one in names)
        return table_order(some, self._hash_of, unpaced)

    def grouped(self) -> Sequence[str]:
        """Return all names in the order of Kafka's maps that group by topic."""
        if self._trie is None:
            self._trie = trie_order(self._hashes, self._hash_of, unpaced)
        return self._trie

    def _hash_of(self, name: str) -> int:
        value = self._hashes[name]
        if value is None:
            value = self._hashes[name] = string_hash(name)
        return value
