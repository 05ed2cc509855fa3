"""What Kafka computes by Java's rules, where a client or a file can tell the difference.

A Java string is a sequence of UTF-16 units: its length and its hash count those.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache


def string_length(text: str | None) -> int:
    """Return what String.length() would, 0 for null."""
    if not text:
        return 0
    return len(text) if text.isascii() else len(_utf16(text)) // 2


def string_hash(text: str) -> int:
    """Return what String.hashCode() would, a signed 32-bit number."""
    units = _utf16(text)
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def hash_order(texts: Iterable[str], count: int = 0, capacity: int = 16) -> list[str]:
    """Return texts in the order in which a HashSet or HashMap that they were put in has them.

    Its table begins with the next power of two of its capacity and doubles when more than three
    quarters are taken; `count` is how many there are in it, when that is more than the texts.
    """
    distinct = list(dict.fromkeys(texts))
    places = 1 << max(capacity - 1, 0).bit_length()
    while max(len(distinct), count) > places * 3 // 4:
        places *= 2

    def place(text: str) -> int:
        spread = string_hash(text) & 0xFFFFFFFF
        return (spread ^ spread >> 16) & (places - 1)

    return sorted(distinct, key=place)


# Longer names are hashed anew each time, or a cache of them would take hundreds of megabytes.
_CACHED_CHARACTERS_MAX = 255


def partition_for(group_id: str, partition_count: int) -> int:
    """Return the partition of __consumer_offsets that a group lives in.

    Kafka's source: GroupCoordinatorService.partitionFor, with Utils.abs of the hash, for which
    the one number that has no positive counterpart counts as 0.
    """
    if len(group_id) > _CACHED_CHARACTERS_MAX:
        return _partition_for.__wrapped__(group_id, partition_count)
    return _partition_for(group_id, partition_count)


@lru_cache(maxsize=4096)
def _partition_for(group_id: str, partition_count: int) -> int:
    value = string_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


def _utf16(text: str) -> bytes:
    # A lone surrogate cannot come from valid UTF-8, but would be one unit.
    return text.encode("utf-16-be", "surrogatepass")
