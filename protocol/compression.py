"""The four codecs a batch's records may be compressed with, as Kafka frames them.

Each codec lives in a library that is loaded when a batch first needs it. Decompression never
trusts its input: the result is bounded by the caller's `max_size`, whatever a header claims,
and bytes that Kafka's Java clients could not read are refused, not passed on to them.

    gzip     RFC 1952, one member or several
    snappy   Xerial's framing (drawn below), or one raw block, as librdkafka sends it
    lz4      one frame of independent blocks; Kafka reads no more than that
    zstd     RFC 8878, one frame or several, with or without their content size

Two things are stricter than Kafka, which ignores bytes after the end of the last gzip member
and of the lz4 frame: here they are corruption, so that all readers see the same records.
"""

from __future__ import annotations

import struct
import threading
import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from protocol.errors import ProtocolError

if TYPE_CHECKING:
    import zstandard

Buffer: TypeAlias = bytes | bytearray | memoryview

# snappy-java's SnappyOutputStream, which Kafka's Java clients use, writes
#
#     | \x82 S N A P P Y \0 | version i32 = 1 | compatible i32 = 1 |     once, then per block:
#     | size i32 | raw snappy block of at most 32 KiB before compression |
#
# Streams may follow each other: the header may come again where a size is due.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = struct.Struct(">8sii")
_XERIAL_VERSION = 1
_XERIAL_BLOCK_BYTES = 32 * 1024  # snappy-java's default
_XERIAL_SIZE = struct.Struct(">i")
# Snappy's densest element is a copy of 64 bytes in 3, so a block that claims more than this
# many times its size is a lie that need not be allocated for.
_SNAPPY_RATIO_MAX = 22

# | magic u32 LE | flags u8 | block size u8 | content size u64? | checksum u8 | blocks, each
# | size u32 LE | data | ..., then a size of 0. The flags byte, from its top bit:
# version (2 bits, always 01), blocks independent, block checksums, content size, content
# checksum, reserved, dictionary.
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_FLAGS_FIXED = 0b1110_0011
_LZ4_FLAGS_KAFKA = 0b0110_0000  # version 1, independent blocks, no dictionary
_LZ4_LEVEL_KAFKA_DEFAULT = 9  # Kafka's name for the fast compressor (Lz4BlockOutputStream)
_LZ4_LEVEL_HIGH_MIN = 3  # the library's lowest level of its high compressor

# | magic u32 LE | frame header | block ... | checksum u32? |, and a block is
# | last: bit 0, type: bits 1-2, size: bits 3-23, little endian in 3 bytes | data |
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"  # after one byte \x50 to \x5f: | magic | size u32 LE | data |
_ZSTD_BLOCK_RAW, _ZSTD_BLOCK_RLE, _ZSTD_BLOCK_COMPRESSED = range(3)
_ZSTD_BLOCK_MAX_BYTES = 128 * 1024
_ZSTD_LEVEL_DEFAULT = 3  # Kafka's default
_ZSTD_CHECKSUM_BYTES = 4
_U32_LE = struct.Struct("<I")

_GZIP_WBITS = 31  # zlib's way to say: a gzip header and trailer around the data
# Input is fed in slices, because zlib copies what is left behind a member's end.
_GZIP_SLICE_BYTES = 64 * 1024

# Each thread keeps its own zstd context: making one takes 11 us, a small batch 3 us.
_thread_contexts = threading.local()


class CorruptCompression(ProtocolError):
    """Bytes that the codec cannot read, or that Kafka's clients could not."""


class DecompressedTooLarge(ProtocolError):
    """Data that would be larger than the bound when decompressed."""


class Codec(IntEnum):
    """A codec; its value is the id in a batch's attributes (Kafka's CompressionType)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name for it, as in `compression.type`."""
        return self.name.lower()


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` as Kafka's clients expect it.

    `level` is the codec's own (Kafka's compression.<codec>.level), None Kafka's default; it
    means nothing to none and snappy. Raises ValueError for a level that the codec lacks.
    """
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return _gzip_compress(data, level)
    if codec == Codec.SNAPPY:
        return _snappy_compress(data)
    if codec == Codec.LZ4:
        return _lz4_compress(data, level)
    return _zstd_compress(data, level)


def decompress(codec: Codec, data: Buffer, max_size: int) -> bytes:
    """Decompress `data` to at most `max_size` bytes.

    Raises DecompressedTooLarge past that bound, CorruptCompression for anything malformed,
    truncated or followed by other bytes. Memory stays within a small multiple of `max_size`.
    """
    if codec == Codec.NONE:
        if len(data) > max_size:
            raise _too_large(codec, max_size)
        return bytes(data)
    view = memoryview(data)
    if codec == Codec.GZIP:
        return _gzip_decompress(view, max_size)
    if codec == Codec.SNAPPY:
        return _snappy_decompress(view, max_size)
    if codec == Codec.LZ4:
        return _lz4_decompress(view, max_size)
    return _zstd_decompress(view, max_size)


def _too_large(codec: Codec, max_size: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"{codec.label} data exceeds {max_size} bytes when decompressed")


def _corrupt(codec: Codec, problem: object) -> CorruptCompression:
    return CorruptCompression(f"corrupt {codec.label} data: {problem}")


def _joined(parts: list[bytes]) -> bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _gzip_compress(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, _GZIP_WBITS
    )
    return compressor.compress(data) + compressor.flush()


def _gzip_decompress(data: memoryview, max_size: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    position = 0
    member = zlib.decompressobj(_GZIP_WBITS)
    try:
        while position < len(data):
            if member.eof:
                member = zlib.decompressobj(_GZIP_WBITS)
            piece = data[position : position + _GZIP_SLICE_BYTES]
            parts.append(member.decompress(piece, max_size + 1 - size))
            size += len(parts[-1])
            if size > max_size:
                raise _too_large(Codec.GZIP, max_size)
            position += len(piece) - len(member.unused_data)
    except zlib.error as error:
        raise _corrupt(Codec.GZIP, error) from error
    if not member.eof:
        raise _corrupt(Codec.GZIP, "it ends within a member")
    return _joined(parts)


def _snappy_compress(data: Buffer) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_XERIAL_SIZE.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: memoryview, max_size: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(data, max_size, max_size)
    parts: list[bytes] = []
    left = max_size
    position = 0
    while position < len(data):
        if data[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position = _skip_xerial_header(data, position)
            continue
        if len(data) - position < _XERIAL_SIZE.size:
            raise _corrupt(Codec.SNAPPY, "it ends within a block's size")
        (size,) = _XERIAL_SIZE.unpack_from(data, position)
        position += _XERIAL_SIZE.size
        if not 0 < size <= len(data) - position:
            raise _corrupt(Codec.SNAPPY, f"a block of {size} bytes does not fit")
        parts.append(_snappy_block(data[position : position + size], left, max_size))
        left -= len(parts[-1])
        position += size
    return _joined(parts)


def _skip_xerial_header(data: memoryview, position: int) -> int:
    """Return the position after a Xerial header, which must be of a version known here."""
    if len(data) - position < _XERIAL_HEADER.size:
        raise _corrupt(Codec.SNAPPY, "it ends within the Xerial header")
    # Some producers write the version in little endian (dpkp/kafka-python#2414), which
    # snappy-java accepts because it asks for "at least version 1".
    _, version, _ = _XERIAL_HEADER.unpack_from(data, position)
    if version < _XERIAL_VERSION:
        raise _corrupt(Codec.SNAPPY, f"version {version} of the Xerial framing")
    return position + _XERIAL_HEADER.size


def _snappy_block(block: memoryview, left: int, max_size: int) -> bytes:
    """Decompress one raw block; `left` of the `max_size` bytes may still be used."""
    from cramjam import DecompressionError, snappy

    try:
        claimed = snappy.decompress_raw_len(block)
        if claimed > _SNAPPY_RATIO_MAX * len(block):
            raise _corrupt(Codec.SNAPPY, f"{len(block)} bytes cannot hold {claimed}")
        if claimed > left:
            raise _too_large(Codec.SNAPPY, max_size)
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from error


def _lz4_compress(data: Buffer, level: int | None) -> bytes:
    from lz4 import frame

    if level is None or level == _LZ4_LEVEL_KAFKA_DEFAULT:
        library_level = 0
    else:
        library_level = max(level, _LZ4_LEVEL_HIGH_MIN)
    # The frame that Kafka's Lz4BlockOutputStream writes: no sizes, no checksums of content.
    compressed: bytes = frame.compress(
        data,
        compression_level=library_level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _lz4_decompress(data: memoryview, max_size: int) -> bytes:
    from lz4 import frame

    if len(data) < 7 or data[:4] != _LZ4_MAGIC:
        raise _corrupt(Codec.LZ4, "no lz4 frame")
    if data[4] & _LZ4_FLAGS_FIXED != _LZ4_FLAGS_KAFKA:
        # Lz4BlockInputStream in the Java clients refuses these too.
        raise _corrupt(Codec.LZ4, "dependent blocks, a dictionary, or an unknown version")
    context = frame.create_decompression_context()
    parts: list[bytes] = []
    size = position = 0
    piece_bytes = max(4 * len(data), 64 * 1024)
    finished = False
    while not finished:
        try:
            part, consumed, finished = frame.decompress_chunk(
                context, data[position:], max_length=min(piece_bytes, max_size + 1 - size)
            )
        except RuntimeError as error:
            raise _corrupt(Codec.LZ4, error) from error
        if not finished and not part and not consumed:
            raise _corrupt(Codec.LZ4, "it ends within the frame")
        parts.append(part)
        size += len(part)
        position += consumed
        if size > max_size:
            raise _too_large(Codec.LZ4, max_size)
    if position != len(data):
        raise _corrupt(Codec.LZ4, f"{len(data) - position} bytes after the frame")
    return _joined(parts)


def _zstd_compress(data: Buffer, level: int | None) -> bytes:
    import zstandard

    compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL_DEFAULT if level is None else level)
    return compressor.compress(data)


def _zstd_decompress(data: memoryview, max_size: int) -> bytes:
    from zstandard import ZstdError

    parts: list[bytes] = []
    left = max_size
    position = 0
    try:
        while position < len(data):
            if data[position + 1 : position + 4] == _ZSTD_SKIPPABLE:
                position = _skip_zstd_skippable(data, position)
                continue
            end, size_max = _zstd_frame_end(data, position)
            part = _zstd_frame(data[position:end], size_max, left, max_size)
            parts.append(part)
            left -= len(part)
            position = end
    except ZstdError as error:
        raise _corrupt(Codec.ZSTD, error) from error
    if not parts:
        raise _corrupt(Codec.ZSTD, "no zstd frame")
    return _joined(parts)


def _skip_zstd_skippable(data: memoryview, position: int) -> int:
    """Return the position after a frame of user data, which decoders pass over."""
    if data[position] & 0xF0 != 0x50 or len(data) - position < 8:
        raise _corrupt(Codec.ZSTD, "no zstd frame")
    position += 8 + _U32_LE.unpack_from(data, position + 4)[0]
    if position > len(data):
        raise _corrupt(Codec.ZSTD, "it ends within a skippable frame")
    return position


def _zstd_frame_end(data: memoryview, position: int) -> tuple[int, int]:
    """Walk the block headers of a frame; return its end and the most bytes it can hold.

    The library neither reports a truncated frame when it streams, nor bounds a frame whose
    content size is not told, so the frame's extent is found here first.
    """
    import zstandard

    if data[position : position + 4] != _ZSTD_MAGIC or len(data) - position < 5:
        raise _corrupt(Codec.ZSTD, "no zstd frame")
    has_checksum = data[position + 4] & 0b100
    # A header takes at most 18 bytes; the library reads no further.
    position += zstandard.frame_header_size(data[position : position + 18])
    size_max = 0
    last = 0
    while not last:
        if len(data) - position < 3:
            raise _corrupt(Codec.ZSTD, "it ends within a frame")
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == _ZSTD_BLOCK_COMPRESSED:
            size_max += _ZSTD_BLOCK_MAX_BYTES
        elif size <= _ZSTD_BLOCK_MAX_BYTES and kind <= _ZSTD_BLOCK_RLE:
            size_max += size
        else:
            raise _corrupt(Codec.ZSTD, "an impossible block")
        position += 3 + (1 if kind == _ZSTD_BLOCK_RLE else size)
    if has_checksum:
        position += _ZSTD_CHECKSUM_BYTES
    if position > len(data):
        raise _corrupt(Codec.ZSTD, "it ends within a frame")
    return position, size_max


def _zstd_decompressor() -> zstandard.ZstdDecompressor:
    """Return this thread's decompressor; its windows stay within the library's 128 MiB."""
    decompressor: zstandard.ZstdDecompressor | None = getattr(_thread_contexts, "zstd", None)
    if decompressor is None:
        import zstandard

        decompressor = _thread_contexts.zstd = zstandard.ZstdDecompressor()
    return decompressor


def _zstd_frame(frame: memoryview, size_max: int, left: int, max_size: int) -> bytes:
    """Decompress one whole frame that can hold `size_max` bytes; `left` may still be used."""
    import zstandard

    decompressor = _zstd_decompressor()
    claimed = zstandard.get_frame_parameters(frame).content_size
    if claimed != zstandard.CONTENTSIZE_UNKNOWN:
        if claimed > size_max:
            raise _corrupt(Codec.ZSTD, f"a frame cannot hold the {claimed} bytes it claims")
        if claimed > left:
            raise _too_large(Codec.ZSTD, max_size)
        return decompressor.decompress(frame)
    if size_max <= left:
        return decompressor.decompress(frame, max_output_size=max(size_max, 1))
    part = decompressor.stream_reader(frame).read(left + 1)
    if len(part) > left:
        raise _too_large(Codec.ZSTD, max_size)
    return part
