"""The hash of what a group reads: it changes when topics come, go or grow (KIP-1101).

A topic's hash is XXH3-64 of this, numbers in little endian as Java's hash4j puts them:

    | 0 i8 | topic id 2 x i64 | name | partition count i32 | partition i32, its racks | ...

where name and racks are UTF-16 followed by their length i32; a rack has its length in front as
well. A group's hash is that of its topics' hashes in the order of their names; 0 stands for no
topics. Kafka's source: Utils.computeTopicHash and computeGroupHash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from xxhash import xxh3_64_intdigest

_MAGIC = b"\0"
_INT32 = Struct("<i")
_INT64 = Struct("<q")
_UUID = Struct(">qq")
_TWO_INT64 = Struct("<qq")


def topic_hash(topic_id: bytes, name: str, racks: Sequence[Sequence[str]]) -> int:
    """Hash a topic, given the racks of each partition's replicas."""
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
    """Hash topics' names and hashes."""
    ordered = sorted(hashes, key=lambda pair: pair[0].encode("utf-16-be", "surrogatepass"))
    if not ordered:
        return 0
    return _signed(xxh3_64_intdigest(b"".join(_INT64.pack(value) for _, value in ordered)))


def _text(text: str) -> tuple[bytes, bytes]:
    units = text.encode("utf-16-le", "surrogatepass")
    return units, _INT32.pack(len(units) // 2)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
