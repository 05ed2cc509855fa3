"""The order in which Java's HashMap and HashSet go through what is in them.

Kafka's assignors go through members, topics and partitions in that order, so who is given what
depends on it: a table has a power of two of places, a key's place is told by its hash, and keys
of one place stay in the order in which they came. (A place with eight keys becomes a tree; keys
that collide so much are not told apart here.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from broker.coordination.java import string_hash

K = TypeVar("K")

_PLACES = 16
_INT32 = 0xFFFFFFFF


def uuid_hash(value: bytes) -> int:
    """Return what Kafka's Uuid.hashCode() would, without its sign."""
    both = int.from_bytes(value[:8], "big") ^ int.from_bytes(value[8:], "big")
    return (both >> 32 ^ both) & _INT32


def int_hash(value: int) -> int:
    """Return what Integer.hashCode() would."""
    return value


class Table(Generic[K]):
    """Keys in a hash table; owned by whoever fills it."""

    __slots__ = ("_hash", "_keys", "_places")

    def __init__(self, hash_of: Callable[[K], int], *, capacity: int = _PLACES) -> None:
        """Make a table for a capacity, as the constructor of HashMap takes it."""
        self._hash = hash_of
        self._keys: dict[K, None] = {}
        self._places = 1 << max(capacity - 1, 0).bit_length()

    @classmethod
    def copy_of(cls, keys: Iterable[K], hash_of: Callable[[K], int]) -> Table[K]:
        """Make a table as HashSet(Collection) does."""
        ordered = list(dict.fromkeys(keys))
        table = cls(hash_of, capacity=max(int(len(ordered) / 0.75) + 1, _PLACES))
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


def in_map_order(uuids: Iterable[bytes]) -> list[bytes]:
    """Return topic ids as a HashMap has them that they were put in one by one."""
    table = Table(uuid_hash)
    for value in uuids:
        table.add(value)
    return list(table)


def hash_of_text(text: str) -> int:
    """Return what String.hashCode() would, without its sign."""
    return string_hash(text) & _INT32
