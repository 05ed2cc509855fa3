"""The keys of a Java HashMap, in the order in which it goes through them.

A key has a place by its hash, in a table with a power of two of places. The order of the keys
of one place depends on how they come in: `put` appends
to the keys of its place and enlarges the table after it, `computeIfAbsent` enlarges the table
first, and puts the key before the others of its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K")

_PLACES = 16


class HashMapKeys(Generic[K]):
    """Keys by place; owned by whoever fills it."""

    __slots__ = ("_hash", "_keys", "_places", "_table")

    def __init__(self, hash_of: Callable[[K], int], capacity: int = _PLACES) -> None:
        """Make a table for a capacity, as the constructor of HashMap takes it."""
        self._hash = hash_of
        self._keys: set[K] = set()
        self._places = 1 << max(capacity - 1, 0).bit_length()
        # Made when the first key comes in.
        self._table: list[list[K]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: K) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys as they are now, whatever becomes of them meanwhile."""
        return iter([key for place in self._table for key in place])

    def put(self, key: K) -> None:
        """Put a key in, as `put` does."""
        if key in self._keys:
            return
        if not self._table:
            self._table = [[] for _ in range(self._places)]
        self._table[self._place(key)].append(key)
        self._keys.add(key)
        if self._is_full():
            self._enlarge()

    def compute(self, key: K) -> bool:
        """Put a key in, as `computeIfAbsent` does; tell whether it was not there."""
        if not self._table:
            self._table = [[] for _ in range(self._places)]
        elif self._is_full():
            self._enlarge()
        if key in self._keys:
            return False
        self._table[self._place(key)].insert(0, key)
        self._keys.add(key)
        return True

    def remove(self, key: K) -> None:
        """Take a key out; the table keeps its size."""
        if key in self._keys:
            self._keys.remove(key)
            self._table[self._place(key)].remove(key)

    def _is_full(self) -> bool:
        return len(self._keys) > self._places * 3 // 4

    def _enlarge(self) -> None:
        keys = list(self)
        self._places *= 2
        self._table = [[] for _ in range(self._places)]
        for key in keys:
            self._table[self._place(key)].append(key)

    def _place(self, key: K) -> int:
        value = self._hash(key)
        return (value ^ value >> 16) & (self._places - 1)
