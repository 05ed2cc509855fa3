"""The orders of Scala's hash maps and sets, by the hashes of their keys.

A mutable map is a table of places, like Java's; the keys of a place are in the order of their
hashes. An immutable map of up to four keys keeps the order in which they come; a larger one is a
trie. Each node of the trie has a branch for each of the 32 values of the next five bits: first
come the keys that are alone in their branch, then the nodes of the other branches. Keys with the
same hash keep the order in which they come.

These are the orders of Kafka's responses: handlers ask for them, so the loops are paced.

Sources: scala.collection.mutable.HashMap, scala.collection.immutable.HashMap and Set, 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from odradek.broker.orders.hash_map import concurrent_places
from odradek.broker.orders.java import partition_hash, string_hash
from odradek.protocol.pacing import Pace, paced, paced_sorted

K = TypeVar("K", bound=Hashable)
TopicPartition = tuple[str, int]

SMALL_MAX = 4
_ALL = 0xFFFFFFFF
_SIGN = 1 << 31


def table_order(keys: Iterable[K], hash_of: Callable[[K], int], pace: Pace = paced) -> list[K]:
    """Return distinct keys in the order of a mutable HashMap or HashSet."""
    given = list(keys)
    if len(given) < 2:
        return given
    last_place = concurrent_places(len(given)) - 1  # The table grows like Java's.

    def rank(key: K) -> tuple[int, int]:
        value = hash_of(key) & _ALL
        spread = value ^ value >> 16
        return spread & last_place, spread ^ _SIGN

    return paced_sorted(given, rank, pace)


def trie_order(keys: Iterable[K], hash_of: Callable[[K], int], pace: Pace = paced) -> list[K]:
    """Return distinct keys in the order of an immutable HashMap or HashSet."""
    given = list(keys)
    if len(given) < 2:
        return given
    improved = [(_improved(hash_of(key)), key) for key in pace(given)]
    return [key for _, key in pace(_node(improved, pace))]


def grouped_order(
    keys: Collection[TopicPartition], *, is_mutable: bool = True
) -> list[tuple[str, list[int]]]:
    """Return distinct partitions as Kafka groups a map of them by topic.

    The map is mutable or immutable; the topics form a trie by their names. Each topic's group is
    of the map's kind: up to four partitions in all, of an immutable map, keep their order.
    """
    if len(keys) < 2:
        return [(name, [one]) for name, one in keys]
    hashes = _hashes(keys)
    is_small = not is_mutable and len(keys) <= SMALL_MAX
    if len(set(paced(hashes.values()))) < len(hashes) and not is_small:
        # Names with the same hash keep the order of the map.
        keys = table_of(keys) if is_mutable else trie_order(keys, _hash_of_key(hashes))
    by_topic: dict[str, list[int]] = {}
    for name, one in paced(keys):
        by_topic.setdefault(name, []).append(one)
    order = table_order if is_mutable else trie_order
    return [
        (
            name,
            by_topic[name]
            if is_small
            else order(by_topic[name], partial(partition_hash, hashes[name])),
        )
        for name in paced(trie_order(by_topic, hashes.__getitem__))
    ]


def table_of(keys: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return distinct partitions in the order of a mutable HashMap."""
    return table_order(keys, _hash_of_key(_hashes(keys)))


def _hashes(keys: Iterable[TopicPartition]) -> dict[str, int]:
    """Return the hashes of the topics' names."""
    hashes: dict[str, int] = {}
    for name, _ in paced(keys):
        if name not in hashes:
            hashes[name] = string_hash(name)
    return hashes


def _hash_of_key(hashes: Mapping[str, int]) -> Callable[[TopicPartition], int]:
    return lambda key: partition_hash(hashes[key[0]], key[1])


def _improved(value: int) -> int:
    """Return the hash that scala.collection.Hashing.improve computes, as unsigned."""
    value = value + ~(value << 9) & _ALL
    value ^= value >> 14
    value = value + (value << 4) & _ALL
    return value ^ value >> 10


def _node(keys: list[tuple[int, K]], pace: Pace) -> list[tuple[int, K]]:
    """Return the keys of a trie node in order; their hashes are without the bits of its path."""
    branches: dict[int, list[tuple[int, K]]] = {}
    for one in pace(keys):
        branches.setdefault(one[0] & 31, []).append(one)
    if len(branches) == 1 and len({value for value, _ in pace(keys)}) == 1:
        return keys
    alone, nodes = [], []
    for branch in sorted(branches):
        some = branches[branch]
        if len(some) == 1:
            alone += some
        else:
            nodes += _node([(value >> 5, key) for value, key in pace(some)], pace)
    return alone + nodes
