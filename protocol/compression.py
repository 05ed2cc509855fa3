"""The four codecs a batch's records may be compressed with, as Kafka frames them.

Each codec lives in a library that is loaded when a batch first needs it. Decompression never
trusts its input: the caller's `max_size` bounds the result, whatever a header claims, and bytes
that Kafka's Java clients could not read are refused, not passed on to them.

    gzip     RFC 1952, one member or several
    snappy   Xerial's framing (protocol/xerial.py), or one raw block, as librdkafka sends it
    lz4      one frame of independent blocks; Kafka reads no more than that
    zstd     RFC 8878, one frame or several, with or without their content size

Data may come in many members: gzip members, Xerial headers and blocks, zstd frames and blocks.
Each takes time even if it is empty, so a bound on the size also bounds their number.

Kafka ignores bytes after the last gzip member and after the lz4 frame; here they are corruption,
so that all readers see the same records.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from odradek.protocol import xerial
from odradek.protocol.errors import ProtocolError
from odradek.protocol.zstd_frames import TooManyBlocks, frame_extent

if TYPE_CHECKING:
    import zstandard

Buffer: TypeAlias = bytes | bytearray | memoryview

# Snappy's densest element is a copy of 64 bytes in 3. A block that claims more than this many
# times its size lies, and is refused before memory is allocated for it.
_SNAPPY_RATIO_MAX = 22

# | magic u32 LE | flags u8 | block size u8 | content size u64? | checksum u8 | blocks, each
# | size u32 LE | data | ..., then a size of 0. The flags byte, from its top bit:
# version (2 bits, always 01), blocks independent, block checksums, content size, content
# checksum, reserved, dictionary.
_LZ4_MAGIC = 0x184D2204
_LZ4_FLAGS_FIXED = 0b1110_0011
_LZ4_FLAGS_KAFKA = 0b0110_0000  # version 1, independent blocks, no dictionary
_LZ4_LEVEL_KAFKA_DEFAULT = 9  # Kafka's name for the fast compressor (Lz4BlockOutputStream)
_LZ4_LEVEL_HIGH_MIN = 3  # the library's lowest level of its high compressor

_ZSTD_LEVEL_DEFAULT = 3  # Kafka's default
_U32_LE = struct.Struct("<I")

_GZIP_WBITS = 31  # asks zlib for a gzip header and trailer around the data
# Input is fed in slices, because zlib copies the bytes after a member's end. The slices begin
# small where many members follow each other.
_GZIP_SLICE_BYTES = 64 * 1024
_GZIP_SLICE_BYTES_MIN = 512

# A member takes as long as this many bytes: 0.2 us (a zstd block) to 2.3 us (a gzip member).
MEMBER_BYTES = 512
# Even the smallest data may have this many members.
_MEMBERS_ANYWAY = 64
# Input is compressed in pieces of one or two blocks of lz4 or snappy.
_PIECE_BYTES = 64 * 1024

# Each thread keeps its own contexts: a new one takes up to 11 us, a small batch 3 us.
_thread_contexts = threading.local()


class CorruptCompression(ProtocolError):
    """Bytes that the codec cannot read, or that Kafka's clients could not."""


class DecompressedTooLarge(ProtocolError):
    """Data that would be larger than the bound when decompressed, or has too many members."""


class Codec(IntEnum):
    """A codec; its value is the id in a batch's attributes (Kafka's CompressionType)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name for the codec, as in `compression.type`."""
        return self.name.lower()


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` as Kafka's clients expect it.

    `level` is the codec's own (Kafka's compression.<codec>.level); None is Kafka's default. The
    codecs none and snappy ignore it. Raises ValueError for a level that the codec lacks.
    """
    return b"".join(compress_in_pieces(codec, data, level))


def compress_in_pieces(codec: Codec, data: Buffer, level: int | None = None) -> Iterator[Buffer]:
    """Yield the result of compress() piece by piece; some pieces are empty.

    A caller may stop when the result becomes too large or takes too long: a piece takes 0.2 s
    at most (lz4 at level 17, with the worst data).
    """
    return _COMPRESSORS[codec](memoryview(data), level)


def decompress(codec: Codec, data: Buffer, max_size: int) -> bytes:
    """Decompress `data` to at most `max_size` bytes.

    Raises DecompressedTooLarge past that bound, CorruptCompression for data that is malformed,
    truncated or followed by other bytes. Memory stays within a small multiple of `max_size`.
    """
    return unpack(codec, data, max_size)[0]


def unpack(codec: Codec, data: Buffer, max_size: int) -> tuple[bytes, int]:
    """Decompress as decompress() does; also return the number of members in the data."""
    return _DECOMPRESSORS[codec](memoryview(data), max_size)


# An import statement in a function takes longer than a small batch.
@cache
def _cramjam() -> ModuleType:
    import cramjam

    return cramjam


@cache
def _lz4_frame() -> ModuleType:
    from lz4 import frame

    return frame  # type: ignore[no-any-return]


def _too_large(codec: Codec, max_size: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"{codec.label} data exceeds {max_size} bytes when decompressed")


def _members_max(max_size: int) -> int:
    return _MEMBERS_ANYWAY + max_size // MEMBER_BYTES


def _too_many(codec: Codec, members_max: int) -> DecompressedTooLarge:
    return DecompressedTooLarge(f"{codec.label} data has more than {members_max} members")


def _corrupt(codec: Codec, problem: object) -> CorruptCompression:
    return CorruptCompression(f"corrupt {codec.label} data: {problem}")


def _pieces(data: memoryview) -> Iterator[memoryview]:
    return (data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES))


def _copy(data: memoryview, level: int | None) -> Iterator[Buffer]:
    yield data


def _copy_within(data: memoryview, max_size: int) -> tuple[bytes, int]:
    if len(data) > max_size:
        raise _too_large(Codec.NONE, max_size)
    return bytes(data), 1


def _joined(parts: list[bytes]) -> bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _gzip_compress(data: memoryview, level: int | None) -> Iterator[Buffer]:
    compressor = zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, _GZIP_WBITS
    )
    for piece in _pieces(data):
        yield compressor.compress(piece)
    yield compressor.flush()


def _gzip_decompress(data: memoryview, max_size: int) -> tuple[bytes, int]:
    parts: list[bytes] = []
    size = position = 0
    members, members_max = 1, _members_max(max_size)
    slice_bytes = _GZIP_SLICE_BYTES
    member = zlib.decompressobj(_GZIP_WBITS)
    try:
        while position < len(data):
            if member.eof:
                member = zlib.decompressobj(_GZIP_WBITS)
                members += 1
                if members > members_max:
                    raise _too_many(Codec.GZIP, members_max)
                slice_bytes = _GZIP_SLICE_BYTES_MIN
            piece = data[position : position + slice_bytes]
            slice_bytes = min(2 * slice_bytes, _GZIP_SLICE_BYTES)
            parts.append(member.decompress(piece, max_size + 1 - size))
            size += len(parts[-1])
            if size > max_size:
                raise _too_large(Codec.GZIP, max_size)
            position += len(piece) - len(member.unused_data)
    except zlib.error as error:
        raise _corrupt(Codec.GZIP, error) from error
    if not member.eof:
        raise _corrupt(Codec.GZIP, "it ends within a member")
    return _joined(parts), members


def _snappy_compress(data: memoryview, level: int | None) -> Iterator[Buffer]:
    snappy = _cramjam().snappy
    yield xerial.HEADER
    for start in range(0, len(data), xerial.BLOCK_BYTES):
        yield xerial.frame(bytes(snappy.compress_raw(data[start : start + xerial.BLOCK_BYTES])))


def _snappy_decompress(data: memoryview, max_size: int) -> tuple[bytes, int]:
    if not xerial.is_framed(data):
        return _snappy_block(data, max_size, max_size), 1
    parts: list[bytes] = []
    left, members, members_max = max_size, 0, _members_max(max_size)
    try:
        for block in xerial.members(data, members_max):
            members += 1
            if block is not None:
                parts.append(_snappy_block(block, left, max_size))
                left -= len(parts[-1])
    except xerial.TooManyMembers:
        raise _too_many(Codec.SNAPPY, members_max) from None
    except ValueError as error:
        raise _corrupt(Codec.SNAPPY, error) from error
    return _joined(parts), members


def _snappy_block(block: memoryview, left: int, max_size: int) -> bytes:
    """Decompress one raw block; `left` of the `max_size` bytes may still be used."""
    library = _cramjam()
    snappy = library.snappy
    try:
        claimed = snappy.decompress_raw_len(block)
        if claimed > _SNAPPY_RATIO_MAX * len(block):
            raise _corrupt(Codec.SNAPPY, f"{len(block)} bytes cannot hold {claimed}")
        if claimed > left:
            raise _too_large(Codec.SNAPPY, max_size)
        return bytes(snappy.decompress_raw(block))
    except library.DecompressionError as error:
        raise _corrupt(Codec.SNAPPY, error) from error


def _lz4_compress(data: memoryview, level: int | None) -> Iterator[Buffer]:
    library_level = 0
    if level is not None and level != _LZ4_LEVEL_KAFKA_DEFAULT:
        library_level = max(level, _LZ4_LEVEL_HIGH_MIN)
    frame = _lz4_frame()
    # The frame that Kafka's Lz4BlockOutputStream writes: no sizes, no checksums of content.
    options = {
        "compression_level": library_level,
        "block_size": frame.BLOCKSIZE_MAX64KB,
        "block_linked": False,
    }
    if len(data) < _PIECE_BYTES:  # the same bytes, without a context's buffers
        yield frame.compress(data, store_size=False, **options)
        return
    context = frame.create_compression_context()
    yield frame.compress_begin(context, **options)
    for piece in _pieces(data):
        yield frame.compress_chunk(context, piece)
    yield frame.compress_flush(context)


def _lz4_decompress(data: memoryview, max_size: int) -> tuple[bytes, int]:
    total = len(data)
    if total < 7 or _U32_LE.unpack_from(data)[0] != _LZ4_MAGIC:
        raise _corrupt(Codec.LZ4, "no lz4 frame")
    if data[4] & _LZ4_FLAGS_FIXED != _LZ4_FLAGS_KAFKA:
        # Lz4BlockInputStream in the Java clients also refuses these.
        raise _corrupt(Codec.LZ4, "dependent blocks, a dictionary, or an unknown version")
    frame = _lz4_frame()
    # A context is used again only after it has read a whole frame: a reset does not clear the
    # content's size (liblz4 1.9.4).
    context = getattr(_thread_contexts, "lz4", None) or frame.create_decompression_context()
    _thread_contexts.lz4 = None
    parts: list[bytes] = []
    size = position = 0
    piece_bytes = max(4 * total, 64 * 1024)
    finished = False
    while not finished:
        try:
            part, consumed, finished = frame.decompress_chunk(
                context,
                data[position:] if position else data,
                max_length=min(piece_bytes, max_size + 1 - size),
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
    if position != total:
        raise _corrupt(Codec.LZ4, f"{total - position} bytes after the frame")
    _thread_contexts.lz4 = context
    return _joined(parts), 1


def _zstd_compress(data: memoryview, level: int | None) -> Iterator[Buffer]:
    compressor = _zstd_compressor(_ZSTD_LEVEL_DEFAULT if level is None else level)
    stream = compressor.compressobj(size=len(data))
    for piece in _pieces(data):
        yield stream.compress(piece)
    yield stream.flush()


def _zstd_compressor(level: int) -> zstandard.ZstdCompressor:
    """Return this thread's compressor, or a new one for a level whose memory is not kept."""
    compressor: zstandard.ZstdCompressor | None = getattr(_thread_contexts, "compressor", None)
    if compressor is not None and level == _ZSTD_LEVEL_DEFAULT:
        return compressor
    import zstandard

    compressor = zstandard.ZstdCompressor(level=level)
    if level == _ZSTD_LEVEL_DEFAULT:
        _thread_contexts.compressor = compressor
    return compressor


def _zstd_decompressor() -> zstandard.ZstdDecompressor:
    """Return this thread's decompressor; its windows stay within the library's 128 MiB."""
    decompressor: zstandard.ZstdDecompressor | None = getattr(_thread_contexts, "zstd", None)
    if decompressor is None:
        import zstandard

        decompressor = _thread_contexts.zstd = zstandard.ZstdDecompressor()
    return decompressor


@cache
def _zstd_error() -> type[Exception]:
    from zstandard import ZstdError

    return ZstdError


def _zstd_decompress(data: memoryview, max_size: int) -> tuple[bytes, int]:
    parts: list[bytes] = []
    left = max_size
    position = members = 0
    members_max = _members_max(max_size)
    try:
        while position < len(data):
            blocks_max = members_max - members
            if blocks_max <= 0:
                raise TooManyBlocks
            end, claimed, size_max, blocks = frame_extent(data, position, blocks_max)
            members += 1 + blocks
            if size_max is not None:
                frame = data[position:end]
                parts.append(_zstd_frame(frame, claimed, size_max, left, max_size))
                left -= len(parts[-1])
            position = end
    except TooManyBlocks:
        raise _too_many(Codec.ZSTD, members_max) from None
    except (ValueError, _zstd_error()) as error:
        raise _corrupt(Codec.ZSTD, error) from error
    if not parts:
        raise _corrupt(Codec.ZSTD, "no zstd frame")
    return _joined(parts), members


def _zstd_frame(
    frame: memoryview, claimed: int | None, size_max: int, left: int, max_size: int
) -> bytes:
    """Decompress one whole frame that can hold `size_max` bytes, of which `left` may be used."""
    decompressor = _zstd_decompressor()
    if claimed is not None:
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


# By the codec's id: comparing with one codec after the other takes longer than a small batch.
_COMPRESSORS = (_copy, _gzip_compress, _snappy_compress, _lz4_compress, _zstd_compress)
_DECOMPRESSORS = (
    _copy_within, _gzip_decompress, _snappy_decompress, _lz4_decompress, _zstd_decompress,
)  # fmt: skip
