"""The keys of Java's HashMap and ConcurrentHashMap, in the order of iteration.

The hash of a key gives its place in a table, whose number of places is a power of two. The order
of the keys in one place depends on how they come in: `put` appends the key to its place, and
then enlarges the table; `computeIfAbsent` enlarges the table first, and puts the key before the
others of its place. (Java turns a place with eight keys into a tree; this module does not.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from odradek.broker.orders.java import hash_spread
from odradek.protocol.pacing import Pace, unpaced

K = TypeVar("K")

_PLACES = 16


class HashMapKeys(Generic[K]):
    """Keys by place; the caller that fills the table owns it."""

    __slots__ = ("_hash", "_keys", "_places", "_table")

    def __init__(self, hash_of: Callable[[K], int], capacity: int = _PLACES) -> None:
        """Create a table for a capacity, like the constructor of HashMap."""
        self._hash = hash_of
        self._keys: set[K] = set()
        self._places = 1 << max(capacity - 1, 0).bit_length()
        # Created when the first key comes in.
        self._table: list[list[K]] = []

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: K) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[K]:
        """Iterate over the present keys; keys may be added and removed during the iteration."""
        return iter([key for place in self._table for key in place])

    def put(self, key: K) -> None:
        """Put a key in, like Java's `put`."""
        if key in self._keys:
            return
        if not self._table:
            self._table = [[] for _ in range(self._places)]
        self._table[self._place(key)].append(key)
        self._keys.add(key)
        if self._is_full():
            self._enlarge()

    def compute(self, key: K) -> bool:
        """Put a key in, like Java's `computeIfAbsent`; return whether the key is new."""
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
        """Remove a key; the table keeps its size."""
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


def concurrent_places(count: int) -> int:
    """Return the number of places in the table of a ConcurrentHashMap after `count` puts."""
    places = _PLACES
    while count >= places * 3 // 4:
        places *= 2
    return places


def concurrent_order(texts: Iterable[str], pace: Pace = unpaced) -> list[str]:
    """Return texts in the order of a ConcurrentHashMap that they were put into one by one.

    `pace` is `paced` where there may be many. (Keys that the map has held and lost are not known
    here; they may have enlarged the table.)
    """
    places = _PLACES
    table: list[list[tuple[int, str]]] = [[] for _ in range(places)]
    for count, text in enumerate(pace(texts), 1):
        spread = hash_spread(text)
        table[spread & places - 1].append((spread, text))
        if count >= places * 3 // 4:
            halves = [_split(keys, places) for keys in pace(table)]
            table = [low for low, _ in halves] + [high for _, high in halves]
            places *= 2
    return [text for keys in pace(table) for _, text in keys]


def _split(
    keys: list[tuple[int, str]], bit: int
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Divide the keys of a place when the table doubles.

    The last keys that stay together keep their order; the others precede them in reverse order.
    """
    last = len(keys) - 1
    while last > 0 and not (keys[last - 1][0] ^ keys[last][0]) & bit:
        last -= 1
    ordered = keys[: max(last, 0)][::-1] + keys[max(last, 0) :]
    return (
        [one for one in ordered if not one[0] & bit],
        [one for one in ordered if one[0] & bit],
    )
