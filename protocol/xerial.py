"""Xerial's framing of snappy blocks, which Kafka's Java clients use (snappy-java's streams).

    | \\x82 S N A P P Y \\0 | version i32 = 1 | compatible i32 = 1 |     once, then per block:
    | size i32 | raw snappy block of at most 32 KiB before compression |

Streams may follow each other: the header may occur again in the place of a size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = struct.Struct(">8sii")
_VERSION = 1
_SIZE = struct.Struct(">i")

HEADER = _HEADER.pack(_MAGIC, _VERSION, _VERSION)
BLOCK_BYTES = 32 * 1024  # before compression: snappy-java's default


class TooManyMembers(Exception):
    """Data of more headers and blocks than the caller wants to visit."""


def is_framed(data: memoryview) -> bool:
    """Return whether data begins with a header."""
    return data[: len(_MAGIC)] == _MAGIC


def frame(block: bytes) -> bytes:
    """Return a raw block with its size before it."""
    return _SIZE.pack(len(block)) + block


def members(data: memoryview, members_max: int) -> Iterator[memoryview | None]:
    """Yield each raw block, and None for each header.

    Raises ValueError with the problem of a malformed member, and TooManyMembers before the one
    that is too many.
    """
    position = count = 0
    total = len(data)
    while position < total:
        count += 1
        if count > members_max:
            raise TooManyMembers
        # The size of a block that fits begins with another byte, which is quickly compared.
        if data[position] == _MAGIC[0] and data[position : position + len(_MAGIC)] == _MAGIC:
            position = _skip_header(data, position)
            yield None
            continue
        if total - position < _SIZE.size:
            raise ValueError("it ends within a block's size")
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        if not 0 < size <= total - position:
            raise ValueError(f"a block of {size} bytes does not fit")
        yield data[position : position + size]
        position += size


def _skip_header(data: memoryview, position: int) -> int:
    """Return the position after a header, whose version must be known here."""
    if len(data) - position < _HEADER.size:
        raise ValueError("it ends within the Xerial header")
    # Some producers write the version in little endian (dpkp/kafka-python#2414), which
    # snappy-java accepts because it asks for "at least version 1".
    _, version, _ = _HEADER.unpack_from(data, position)
    if version < _VERSION:
        raise ValueError(f"version {version} of the Xerial framing")
    return position + _HEADER.size
