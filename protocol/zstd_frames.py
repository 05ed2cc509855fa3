"""The end of a zstd frame and the most that it can hold, found without decompression.

The library does not report a truncated frame when it streams, and does not bound a frame that
does not state its content size. RFC 8878, all integers little endian:

    | magic u32 | descriptor u8 | window u8? | dictionary id | content size | block ... |
    | checksum u32? |

    descriptor: | size of the content size (2 bits) | no window | 0 | 0 | checksum |
                | size of the dictionary id (2 bits) |
    block:      | last: bit 0, type: bits 1-2, size: bits 3-23 | data |

User data, which decoders skip, is | magic u32, of 16 values | size u32 | data |.
"""

from __future__ import annotations

import struct
from functools import cache

_MAGIC = 0xFD2FB528
_USER_DATA_MAGIC = 0x184D2A50  # to 0x184D2A5F
_USER_DATA_HEADER = struct.Struct("<II")
_U32 = struct.Struct("<I")
_HEADER_SIZE_MIN = 5  # the magic and the descriptor
_NO_WINDOW, _CHECKSUM = 0b0010_0000, 0b0000_0100
_CHECKSUM_BYTES = 4
_BLOCK_HEADER_BYTES = 3
_RAW, _RLE, _COMPRESSED = range(3)
_BLOCK_BYTES_MAX = 128 * 1024
_NO_LIMIT = 1 << 62


class TooManyBlocks(Exception):
    """A frame of more blocks than the caller wants to visit."""


def frame_extent(
    data: memoryview, position: int, blocks_max: int = _NO_LIMIT
) -> tuple[int, int | None, int | None, int]:
    """Return a frame's end, the content size that it claims, the most that it can hold, and
    its number of blocks.

    The claim is None where there is none; both sizes are None for user data. Raises ValueError,
    with the problem, when there is no whole frame; TooManyBlocks.
    """
    if len(data) - position < _HEADER_SIZE_MIN:
        raise ValueError("no zstd frame")
    (magic,) = _U32.unpack_from(data, position)
    if magic == _MAGIC:
        return _walk(data, position, blocks_max)
    if magic & ~0x0F != _USER_DATA_MAGIC or len(data) - position < _USER_DATA_HEADER.size:
        raise ValueError("no zstd frame")
    _, size = _USER_DATA_HEADER.unpack_from(data, position)
    position += _USER_DATA_HEADER.size + size
    if position > len(data):
        raise ValueError("it ends within a skippable frame")
    return position, None, None, 0


def _walk(
    data: memoryview, position: int, blocks_max: int
) -> tuple[int, int | None, int, int]:
    """Step from block to block, to the end of the frame."""
    total, descriptor = len(data), data[position + 4]
    header_bytes, content_bytes = _header_shape(descriptor)
    position += header_bytes
    claimed = None
    if content_bytes and position <= total:
        claimed = int.from_bytes(data[position - content_bytes : position], "little")
        if content_bytes == 2:
            claimed += 256  # smaller sizes take one byte
    size_max = last = blocks = 0
    while not last:
        if blocks == blocks_max:
            raise TooManyBlocks
        blocks += 1
        if total - position < _BLOCK_HEADER_BYTES:
            raise ValueError("it ends within a frame")
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == _COMPRESSED:
            size_max += _BLOCK_BYTES_MAX
        elif size <= _BLOCK_BYTES_MAX and kind <= _RLE:
            size_max += size
        else:
            raise ValueError("an impossible block")
        position += _BLOCK_HEADER_BYTES + (1 if kind == _RLE else size)
    if descriptor & _CHECKSUM:
        position += _CHECKSUM_BYTES
    if position > total:
        raise ValueError("it ends within a frame")
    return position, claimed, size_max, blocks


@cache
def _header_shape(descriptor: int) -> tuple[int, int]:
    """Return the size of a frame's magic and header, and of the content size at their end."""
    window = 0 if descriptor & _NO_WINDOW else 1
    content = (1 - window, 2, 4, 8)[descriptor >> 6]
    return _HEADER_SIZE_MIN + window + (0, 1, 2, 4)[descriptor & 0b11] + content, content
