"""The orders of Java's hash maps and sets of partitions, and of topics by name or id.

Each is a table of places (broker/orders/java.py). Keys of one place are in the order in
which they come. Kafka's responses list the keys in the order of such a map.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from odradek.broker.orders.hash_map import HashMapKeys
from odradek.broker.orders.java import (
    hash_order,
    hash_places,
    int_hash,
    partition_hash,
    place_order,
    string_hash,
    uuid_hash,
)
from odradek.protocol.pacing import Pace, paced, unpaced

K = TypeVar("K")
T = TypeVar("T", bound=tuple[str, int])


def partition_order(keys: Collection[T], pace: Pace = paced) -> list[T]:
    """Return distinct partitions in the order of the HashSet or HashMap they are put in."""
    if len(keys) < 2:
        return list(keys)
    hashes = {name: string_hash(name) for name in pace({name for name, _ in keys})}
    return place_order(
        keys, lambda key: partition_hash(hashes[key[0]], key[1]), hash_places(len(keys)), pace
    )


def grouped_by_name(keys: Iterable[T], pace: Pace = paced) -> list[tuple[str, list[int]]]:
    """Group partitions by topic name, in HashMap order; those of a topic keep their order."""
    by_name = _by_name(keys, pace)
    return [(name, by_name[name]) for name in hash_order(by_name, pace=pace)]


def collected_by_name(keys: Collection[T]) -> list[tuple[str, list[int]]]:
    """Group partitions by topic name as Collectors.groupingBy does, by computeIfAbsent."""
    by_name = _by_name(keys, unpaced)
    names = _computed((name for name, _ in keys), string_hash, unpaced)
    return [(name, by_name[name]) for name in names]


def computed_ids(topic_ids: Iterable[bytes], pace: Pace = paced) -> list[bytes]:
    """Return ids of topics in the order of a HashMap, put in by computeIfAbsent.

    A call for an id that is present may enlarge the table, too.
    """
    return _computed(topic_ids, uuid_hash, pace)


def computed_numbers(numbers: Iterable[int], pace: Pace = paced) -> list[int]:
    """Return numbers in the order of a HashMap, put in by computeIfAbsent."""
    return _computed(numbers, int_hash, pace)


def put_numbers(numbers: Collection[int], pace: Pace = paced) -> list[int]:
    """Return distinct numbers in the order of a HashMap, put in by put."""
    return place_order(numbers, int_hash, hash_places(len(numbers)), pace)


def put_ids(topic_ids: Collection[bytes], pace: Pace = paced) -> list[bytes]:
    """Return distinct ids of topics in the order of a HashMap, put in by put."""
    return place_order(topic_ids, uuid_hash, hash_places(len(topic_ids)), pace)


def _by_name(keys: Iterable[T], pace: Pace) -> dict[str, list[int]]:
    by_name: dict[str, list[int]] = {}
    for name, partition in pace(keys):
        by_name.setdefault(name, []).append(partition)
    return by_name


def _computed(keys: Iterable[K], hash_of: Callable[[K], int], pace: Pace) -> list[K]:
    table: HashMapKeys[K] = HashMapKeys(hash_of)
    for key in pace(keys):
        table.compute(key)
    return list(table)
