"""The orders of iteration of Java's HashMap and HashSet, and of Kafka's own table.

Kafka's assignors go through members, topics and partitions in these orders, so assignments depend
on them. The number of places of a table is a power of two, the hash of a key gives its place, and
keys of one place stay in the order in which they came. (Java turns a place with eight keys into a
tree, with another order; this module does not.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from odradek.broker.orders.java import hash_order, int_hash, string_hash, uuid_hash

K = TypeVar("K")
V = TypeVar("V")

PLACES = 16
_INT32 = 0xFFFFFFFF
_INT64 = 0xFFFFFFFFFFFFFFFF
# The factor of Kafka's BaseHashTable, and its first number of places.
_FIBONACCI = -7046029254386353131
TIMELINE_PLACES = 2


class Table(Generic[K]):
    """Keys in a hash table; the caller that fills the table owns it."""

    __slots__ = ("_hash", "_keys", "_places")

    def __init__(
        self, hash_of: Callable[[K], int], keys: Iterable[K] = (), *, capacity: int = PLACES
    ) -> None:
        """Create a table for a capacity, like the constructor of HashMap; then add the keys."""
        self._hash = hash_of
        self._keys: dict[K, None] = {}
        self._places = 1 << max(capacity - 1, 0).bit_length()
        for key in keys:
            self.add(key)

    @classmethod
    def copy_of(cls, keys: Iterable[K], hash_of: Callable[[K], int]) -> Table[K]:
        """Create a table from keys, like HashSet(Collection)."""
        ordered = list(dict.fromkeys(keys))
        return cls(hash_of, ordered, capacity=max(int(len(ordered) / 0.75) + 1, PLACES))

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: K) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys, place by place."""
        return iter(sorted(self._keys, key=self._place))

    def add(self, key: K) -> None:
        """Add a key; the table doubles when it is more than three quarters full."""
        self._keys[key] = None
        while len(self._keys) > self._places * 3 // 4:
            self._places *= 2

    def discard(self, key: K) -> None:
        """Remove a key; the table keeps its size."""
        self._keys.pop(key, None)

    def _place(self, key: K) -> int:
        value = self._hash(key)
        return (value ^ value >> 16) & (self._places - 1)


class Moment(NamedTuple):
    """The state of a Timeline at a moment: its number of places, and of keys that had come."""

    places: int
    arrivals: int


class Timeline(dict[str, V]):
    """Values by text, in the order of Kafka's TimelineHashMap.

    Before a value is put in, even for a present key, the table doubles if it would become more
    than four thirds full; it never shrinks. In one place the last key to come is the first. (Only
    values put in by `[]` are counted.)
    """

    __slots__ = ("_now", "_ordered", "_ordered_at")

    def __init__(self) -> None:
        super().__init__()
        self._now = Moment(TIMELINE_PLACES, 0)
        self._ordered: Sequence[str] = ()
        self._ordered_at = (self._now, 0)

    def __setitem__(self, key: str, value: V) -> None:
        """Put a value in; a new key becomes the last of its place."""
        places, arrivals = self._now
        if (len(self) + 1) * 3 > places * 4:
            places *= 2
        self._now = Moment(places, arrivals + (key not in self))
        super().__setitem__(key, value)

    def now(self) -> Moment:
        """Return the present state of the table."""
        return self._now

    def in_order(self) -> Sequence[str]:
        """Return the keys in the order of the table.

        They are sorted once, and again when a key was added or removed: 3 ms for 1,000 keys.
        """
        at = self._now, len(self)
        if self._ordered_at != at:
            self._ordered = _in_order(self, self._now.places, string_hash)
            self._ordered_at = at
        return self._ordered

    def copied(self, since: Moment) -> list[str]:
        """Return the keys in the order of a HashMap that they were copied into.

        The keys that had come by a moment are copied first, in the order of the table at that
        time, and then the later keys, as Kafka adds the members of an operation in progress.
        """
        keys = list(self)
        old = len(keys) - (self._now.arrivals - since.arrivals)
        first = _in_order(keys[:old], since.places, string_hash)
        return hash_order([*first, *keys[old:]])


class NumberTimeline(dict[int, V]):
    """Values by number, in the order of Kafka's TimelineHashMap.

    Values are put in by `put`, or by `[]` after a check of `full`, which is faster.
    """

    __slots__ = ("_places", "full")

    def __init__(self) -> None:
        super().__init__()
        self._places = TIMELINE_PLACES
        # With so many values the table doubles before the next value is put in.
        self.full = self._places * 4 // 3

    def put(self, key: int, value: V) -> None:
        """Put a value in; a new key becomes the last of its place."""
        if len(self) >= self.full:
            self.grow()
        self[key] = value

    def grow(self) -> None:
        """Double the table."""
        self._places *= 2
        self.full = self._places * 4 // 3

    def in_order(self) -> list[int]:
        """Return the keys in the order of the table."""
        return _in_order(self, self._places, int_hash)


def timeline_place(text: str, places: int) -> int:
    """Return the place of a text in a TimelineHashMap."""
    return (string_hash(text) * _FIBONACCI & _INT64) >> 65 - places.bit_length()


def _in_order(keys: Iterable[K], places: int, hash_of: Callable[[K], int]) -> list[K]:
    """Return keys, given in the order in which they came, in the order of a TimelineHashMap.

    A place has its keys in the order in which they came, and Kafka reads them from the end.
    """
    shift = 65 - places.bit_length()
    ordered = list(keys)
    ordered.reverse()
    ordered.sort(key=lambda key: (hash_of(key) * _FIBONACCI & _INT64) >> shift)
    return ordered


def in_map_order(uuids: Iterable[bytes]) -> list[bytes]:
    """Return topic ids in the order of a HashMap that they were put into one by one."""
    return list(Table(uuid_hash, uuids))


def in_number_order(numbers: Iterable[int]) -> list[int]:
    """Return partitions in the order of a HashMap that they were put into one by one."""
    return list(Table(int_hash, numbers))


def in_set_order(partitions: Iterable[int]) -> list[int]:
    """Return partitions of a record in the order of the HashSet that Kafka reads them into."""
    return list(Table.copy_of(partitions, int_hash))
