"""Kafka's default partition of a key: murmur2 of the key, modulo the number of partitions.

Murmur2 is Austin Appleby's hash; the seed, and the step from a hash to a partition, are those of
Kafka's Utils.murmur2 and BuiltInPartitioner.partitionForKey. Other clients may use other
partitioners.
"""

from __future__ import annotations

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF


def partition_of_key(key: bytes, partition_count: int) -> int:
    """Return the default partition of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """Hash bytes to 32 bits, as Kafka's clients do."""
    hashed = (_SEED ^ len(data)) & _MASK
    words_end = len(data) & ~3
    for at in range(0, words_end, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    if words_end < len(data):
        hashed ^= int.from_bytes(data[words_end:], "little")
        hashed = hashed * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15
