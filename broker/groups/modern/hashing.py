"""The hash of the topics that a group reads: it changes when topics come, go or grow (KIP-1101).

A topic's hash is the XXH3-64 of these fields, with little-endian numbers, as in Java's hash4j:

    | 0 i8 | topic id 2 x i64 | name | partition count i32 | partition i32, its racks | ...

The name and the racks are UTF-16, followed by their length i32; a rack has its length in front,
too. A group's hash is that of its topics' hashes in the order of their names; 0 means no topics.
Kafka's source: Utils.computeTopicHash and computeGroupHash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from xxhash import xxh3_64_intdigest

from odradek.broker.orders.java import utf16

_MAGIC = b"\0"
_INT32 = Struct("<i")
_INT64 = Struct("<q")
_UUID = Struct(">qq")
_TWO_INT64 = Struct("<qq")


def topic_hash(topic_id: bytes, name: str, racks: Sequence[Sequence[str]]) -> int:
    """Hash a topic; `racks` has the racks of each partition's replicas."""
    parts = [
        _MAGIC,
        _TWO_INT64.pack(*_UUID.unpack(topic_id)),
        *_text(name),
        _INT32.pack(len(racks)),
    ]
    for partition, hosts in enumerate(racks):
        parts.append(_INT32.pack(partition))
        for rack in sorted(hosts):
            units, length = _text(rack)
            parts += (length, units, length)
    return _signed(xxh3_64_intdigest(b"".join(parts)))


def group_hash(hashes: Iterable[tuple[str, int]]) -> int:
    """Hash a group's topics, given as names and hashes."""
    ordered = sorted(hashes, key=lambda pair: utf16(pair[0]))
    if not ordered:
        return 0
    return _signed(xxh3_64_intdigest(b"".join(_INT64.pack(value) for _, value in ordered)))


def _text(text: str) -> tuple[bytes, bytes]:
    units = text.encode("utf-16-le", "surrogatepass")
    return units, _INT32.pack(len(units) // 2)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
