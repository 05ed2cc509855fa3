"""Lengths, hashes and orders by Java's rules, where Kafka's clients or files depend on them.

A Java string is a sequence of UTF-16 units: its length and its hash are computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import mul
from struct import unpack
from typing import TypeVar

from odradek.protocol.pacing import Pace, paced_sorted, unpaced

K = TypeVar("K")


def string_length(text: str | None) -> int:
    """Return String.length(), 0 for null."""
    if not text:
        return 0
    return len(text) if text.isascii() else len(utf16(text)) // 2


# The factors of a text's units in its hash, that of the last unit last; most names are shorter.
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in reversed(range(256)))


def string_hash(text: str) -> int:
    """Return String.hashCode(), a signed 32-bit number."""
    units: bytes | tuple[int, ...] = text.encode() if text.isascii() else _units(text)
    value = 0
    # A sum of products runs in C: a quarter of the time of a loop over the units.
    for start in range(0, len(units), len(_POWERS)):
        some = units[start : start + len(_POWERS)]
        value = value * pow(31, len(some), 1 << 32) + sum(map(mul, some, _POWERS[-len(some) :]))
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_hash(topic_hash: int, partition: int) -> int:
    """Return TopicPartition.hashCode(), as unsigned, from the hash of the topic's name."""
    return 31 * (31 + partition) + topic_hash & 0xFFFFFFFF


def uuid_hash(value: bytes) -> int:
    """Return Kafka's Uuid.hashCode(), as an unsigned number."""
    both = int.from_bytes(value[:8], "big") ^ int.from_bytes(value[8:], "big")
    return (both >> 32 ^ both) & 0xFFFFFFFF


def int_hash(value: int) -> int:
    """Return Integer.hashCode()."""
    return value


def hash_order(
    texts: Iterable[str], count: int = 0, capacity: int = 16, pace: Pace = unpaced
) -> list[str]:
    """Return texts in the order of a HashSet or HashMap that they were put in.

    The table begins with the next power of two of its capacity, and doubles when more than three
    quarters are taken; `count` is the number of its keys, when that is more than the texts.
    `pace` is `paced` where a client decides how many texts there are.
    """
    distinct = dict.fromkeys(pace(texts))
    places = hash_places(max(len(distinct), count), capacity)
    return place_order(distinct, string_hash, places, pace)


def hash_set_order(texts: Iterable[str]) -> list[str]:
    """Return texts in the order of a HashSet that is created from the sorted texts at once."""
    ordered = sorted(texts)
    return hash_order(ordered, capacity=max(int(len(ordered) / 0.75) + 1, 16))


def place_order(
    keys: Iterable[K], hash_of: Callable[[K], int], places: int, pace: Pace = unpaced
) -> list[K]:
    """Return keys in the order of a table of so many places; keys of one place keep their order.

    `pace` is `paced` where there may be many.
    """

    def place(key: K) -> int:
        value = hash_of(key) & 0xFFFFFFFF
        return (value ^ value >> 16) & (places - 1)

    return paced_sorted(keys, place, pace)


def hash_places(count: int, capacity: int = 16) -> int:
    """Return the number of places in the table of a HashMap that has had `count` keys at once."""
    places = 1 << max(capacity - 1, 0).bit_length()
    while count > places * 3 // 4:
        places *= 2
    return places


def copied_capacity(count: int) -> int:
    """Return the capacity that HashMap(Map) gives the copy of a map that is not empty."""
    return int(count / 0.75 + 1)


def hash_spread(text: str) -> int:
    """Return the hash of a text after HashMap's spreading: its low bits are the text's place."""
    value = string_hash(text) & 0xFFFFFFFF
    return value ^ value >> 16


# Longer names are not cached: a cache of them could take hundreds of megabytes.
_CACHED_CHARACTERS_MAX = 255


def partition_for(group_id: str, partition_count: int) -> int:
    """Return the partition of __consumer_offsets that a group lives in.

    Kafka's source: GroupCoordinatorService.partitionFor, with Utils.abs of the hash, which
    returns 0 for the one number that has no positive counterpart.
    """
    if len(group_id) > _CACHED_CHARACTERS_MAX:
        return _partition_for.__wrapped__(group_id, partition_count)
    return _partition_for(group_id, partition_count)


@lru_cache(maxsize=4096)
def _partition_for(group_id: str, partition_count: int) -> int:
    value = string_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


def _units(text: str) -> tuple[int, ...]:
    data = utf16(text)
    return unpack(f">{len(data) // 2}H", data)


def utf16(text: str) -> bytes:
    """Return the key by which Java compares texts: their UTF-16 units."""
    # A lone surrogate cannot come from valid UTF-8, but counts as one unit.
    return text.encode("utf-16-be", "surrogatepass")
