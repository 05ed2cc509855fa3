"""The order in which Kafka's coordinators go through the partitions of their topic.

ListGroups goes through all partitions, and a request that names groups goes through the
partitions of these groups. Kafka's sources: CoordinatorRuntime.coordinators,
GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.orders.hash_map import HashMapKeys, concurrent_places
from odradek.broker.orders.java import partition_hash, place_order, string_hash


def loading_order(topic: str, count: int) -> list[int]:
    """Return the partitions of a topic in the order in which its coordinator lists them.

    Kafka keeps them in a ConcurrentHashMap, which doubles when three quarters are taken, and
    adds each when it is loaded. Partitions share a place only in a topic with far more than a
    thousand of them; here they follow the order of their numbers, while Kafka's order depends on
    the order in which it became their leader.
    """
    topic_hash = string_hash(topic)
    places = concurrent_places(count)
    return place_order(range(count), lambda one: partition_hash(topic_hash, one), places)


def asking_order(topic: str, partitions: Iterable[int]) -> list[int]:
    """Return the partitions that a request needs in the order in which Kafka asks them.

    They are the keys of a HashMap, put in by computeIfAbsent.
    """
    topic_hash = string_hash(topic)
    keys: HashMapKeys[int] = HashMapKeys(lambda one: partition_hash(topic_hash, one))
    for partition in partitions:
        keys.compute(partition)
    return list(keys)
