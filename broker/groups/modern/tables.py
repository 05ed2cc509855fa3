"""The order in which Java's HashMap and HashSet, and Kafka's own table, go through what is there.

Kafka's assignors go through members, topics and partitions in that order, so who is given what
depends on it: a table has a power of two of places, a key's place is told by its hash, and keys
of one place stay in the order in which they came. (A place with eight keys becomes a tree; keys
that collide so much are not told apart here.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from broker.orders.java import hash_order, int_hash, string_hash, uuid_hash

K = TypeVar("K")
V = TypeVar("V")

PLACES = 16
_INT32 = 0xFFFFFFFF
_INT64 = 0xFFFFFFFFFFFFFFFF
# The factor of Kafka's BaseHashTable, and how many places it begins with.
_FIBONACCI = -7046029254386353131
TIMELINE_PLACES = 2


class Table(Generic[K]):
    """Keys in a hash table; owned by whoever fills it."""

    __slots__ = ("_hash", "_keys", "_places")

    def __init__(self, hash_of: Callable[[K], int], *, capacity: int = PLACES) -> None:
        """Make a table for a capacity, as the constructor of HashMap takes it."""
        self._hash = hash_of
        self._keys: dict[K, None] = {}
        self._places = 1 << max(capacity - 1, 0).bit_length()

    @classmethod
    def copy_of(cls, keys: Iterable[K], hash_of: Callable[[K], int]) -> Table[K]:
        """Make a table as HashSet(Collection) does."""
        ordered = list(dict.fromkeys(keys))
        table = cls(hash_of, capacity=max(int(len(ordered) / 0.75) + 1, PLACES))
        for key in ordered:
            table.add(key)
        return table

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: K) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys, place by place."""
        return iter(sorted(self._keys, key=self._place))

    def add(self, key: K) -> None:
        """Put a key in; the table doubles when it is more than three quarters full."""
        self._keys[key] = None
        while len(self._keys) > self._places * 3 // 4:
            self._places *= 2

    def discard(self, key: K) -> None:
        """Take a key out; the table keeps its size."""
        self._keys.pop(key, None)

    def _place(self, key: K) -> int:
        value = self._hash(key)
        return (value ^ value >> 16) & (self._places - 1)


class Moment(NamedTuple):
    """What a Timeline was like: how many places it had, and how many keys had come."""

    places: int
    arrivals: int


class Timeline(dict[str, V]):
    """Values by text, with the order in which Kafka's TimelineHashMap goes through them.

    Its table doubles before anything is put in, be it there already, when that would make it more
    than four thirds full; it never shrinks. Of one place the last to come is the first. (What is
    put in otherwise than by `[]` is not counted.)
    """

    __slots__ = ("_now", "_ordered", "_ordered_at")

    def __init__(self) -> None:
        super().__init__()
        self._now = Moment(TIMELINE_PLACES, 0)
        self._ordered: Sequence[str] = ()
        self._ordered_at = (self._now, 0)

    def __setitem__(self, key: str, value: V) -> None:
        """Put a value in, the last of its place unless it is there."""
        places, arrivals = self._now
        if (len(self) + 1) * 3 > places * 4:
            places *= 2
        self._now = Moment(places, arrivals + (key not in self))
        super().__setitem__(key, value)

    def now(self) -> Moment:
        """Return what it is like."""
        return self._now

    def in_order(self) -> Sequence[str]:
        """Return the keys as the table has them.

        They are sorted once, and again when a key has come or gone: 3 ms for 1,000 keys.
        """
        at = self._now, len(self)
        if self._ordered_at != at:
            self._ordered = _in_order(self, self._now.places, string_hash)
            self._ordered_at = at
        return self._ordered

    def copied(self, since: Moment) -> list[str]:
        """Return the keys as a HashMap has them that they were copied into.

        First those that had come at a moment, in the order of the table as it was then; after
        them, as Kafka puts in what is being decided, those that have come since.
        """
        keys = list(self)
        old = len(keys) - (self._now.arrivals - since.arrivals)
        first = _in_order(keys[:old], since.places, string_hash)
        return hash_order([*first, *keys[old:]])


class NumberTimeline(dict[int, V]):
    """Values by number, with the order in which Kafka's TimelineHashMap goes through them.

    Values are put in by `put`, or by `[]` after a look at `full`, which is faster.
    """

    __slots__ = ("_places", "full")

    def __init__(self) -> None:
        super().__init__()
        self._places = TIMELINE_PLACES
        # With so many values the table doubles before anything is put in.
        self.full = self._places * 4 // 3

    def put(self, key: int, value: V) -> None:
        """Put a value in, the last of its place unless it is there."""
        if len(self) >= self.full:
            self.grow()
        self[key] = value

    def grow(self) -> None:
        """Double the table."""
        self._places *= 2
        self.full = self._places * 4 // 3

    def in_order(self) -> list[int]:
        """Return the keys as the table has them."""
        return _in_order(self, self._places, int_hash)


def timeline_place(text: str, places: int) -> int:
    """Return the place of a text in a TimelineHashMap."""
    return (string_hash(text) * _FIBONACCI & _INT64) >> 65 - places.bit_length()


def _in_order(keys: Iterable[K], places: int, hash_of: Callable[[K], int]) -> list[K]:
    """Return keys, in the order in which they came, as a TimelineHashMap has them.

    A place has its keys as they came, and Kafka reads them from their end.
    """
    shift = 65 - places.bit_length()
    ordered = list(keys)
    ordered.reverse()
    ordered.sort(key=lambda key: (hash_of(key) * _FIBONACCI & _INT64) >> shift)
    return ordered


def in_map_order(uuids: Iterable[bytes]) -> list[bytes]:
    """Return topic ids as a HashMap has them that they were put in one by one."""
    table = Table(uuid_hash)
    for value in uuids:
        table.add(value)
    return list(table)


def in_number_order(numbers: Iterable[int]) -> list[int]:
    """Return partitions as a HashMap has them that they were put in one by one."""
    table = Table(int_hash)
    for number in numbers:
        table.add(number)
    return list(table)


def hash_of_text(text: str) -> int:
    """Return what String.hashCode() would, without its sign."""
    return string_hash(text) & _INT32
