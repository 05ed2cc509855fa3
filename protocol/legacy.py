"""Messages of magic 0 and 1, the format before Kafka 0.11, which old logs still hold.

Clients cannot produce them any more (KIP-724), but a log keeps them unchanged, beside batches of
magic 2. An entry of a log is one message after its offset and size; big endian:

     0 offset       i64    of the message; a wrapper's is that of its last message
     8 size         i32    bytes after this field
    12 crc          u32    CRC-32 (zlib's) of all bytes after it
    16 magic        i8     0 or 1
    17 attributes   i8     | unused (4 bits) | append time: magic 1 only | codec (3) |
    18 timestamp    i64    magic 1 only: ms, -1 for none; a wrapper's is its messages' largest
       key size     i32    -1 for none, then the key
       value size   i32    -1 for none, then the value

With a codec (gzip, snappy or lz4) the message is a wrapper: it has no key, and its value is a
compressed set of such entries. Their offsets are the log's under magic 0, and relative ones under
magic 1: the last one's stands for the wrapper's. Under append time the wrapper's timestamp is
that of all messages. Some Kafkas wrote messages of one magic into a wrapper of the other
(KAFKA-4298): the wrapper's magic decides on offsets, a message's magic on its timestamp.

Under magic 0 the lz4 frame has a wrong checksum in its header: Kafka also included the frame's
magic number in it (KAFKA-3160), and does not check it when it reads.

Source: Kafka's LegacyRecord, AbstractLegacyRecordBatch and Lz4BlockInputStream; KIP-31
(relative offsets), KIP-32 (timestamps).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from odradek.protocol.batch_records import DECOMPRESSED_MAX_BYTES, iterate_records
from odradek.protocol.batches import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    Record,
    UnsupportedMagic,
    batch_crc,
    read_header,
)
from odradek.protocol.compression import Buffer, Codec, decompress
from odradek.protocol.records_plain import wrap_int64

# The size of the smallest entry of each magic: no key, no value.
SIZES_MIN = (26, 34)
# In place of a header's leader epoch and count, which messages do not have.
NO_LEADER_EPOCH = -1
NO_COUNT = -1

_HEAD = struct.Struct(">qiIbB")
_TIMESTAMP_POSITION = 18
_COVERED_POSITION = 16  # the first byte that the CRC covers
_BITS_KNOWN = (CODEC_MASK, CODEC_MASK | LOG_APPEND_TIME_BIT)
_NONE = -1
_INT32_MAX = 2**31 - 1
_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")

_LZ4_FLAGS_POSITION = 4
_LZ4_CONTENT_SIZE_BIT = 0b1000


def read_entry(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the head of the entry at `position` as a batch's; the rest need not be in the buffer.

    Base and last offset are the entry's own, since a wrapper does not state its first; fields
    that only magic 2 has are -1. Raises CorruptBatch for an impossible head; the CRC is not
    checked.
    """
    left = len(buffer) - position
    if left < _TIMESTAMP_POSITION:
        raise CorruptBatch(f"{left} bytes are too few for a message")
    offset, length, crc, magic, attributes = _HEAD.unpack_from(buffer, position)
    if magic not in (0, 1) or length + LOG_OVERHEAD < SIZES_MIN[magic]:
        raise CorruptBatch(f"no message has magic {magic} and size {length}")
    if left < SIZES_MIN[magic]:
        raise CorruptBatch(f"{left} bytes are too few for a message of magic {magic}")
    if attributes & CODEC_MASK > Codec.LZ4:
        raise CorruptBatch(f"codec {attributes & CODEC_MASK} in a message of magic {magic}")
    timestamp = NO_TIMESTAMP
    key_at = _TIMESTAMP_POSITION
    if magic == 1:
        timestamp = _I64.unpack_from(buffer, position + key_at)[0]
        key_at += _I64.size
    (key_size,) = _I32.unpack_from(buffer, position + key_at)
    # A check of the CRC would read all of it; this check finds a batch whose magic has flipped.
    if not _NONE <= key_size <= length + LOG_OVERHEAD - SIZES_MIN[magic]:
        raise CorruptBatch(f"a key of {key_size} bytes in a message of {length}")
    return BatchHeader(
        base_offset=offset,
        length=length,
        leader_epoch=NO_LEADER_EPOCH,
        magic=magic,
        crc=crc,
        attributes=attributes & _BITS_KNOWN[magic],
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        count=NO_COUNT if attributes & CODEC_MASK else 1,
    )


def decode_entry(
    buffer: Buffer, position: int = 0, max_decompressed: int = DECOMPRESSED_MAX_BYTES
) -> list[Record]:
    """Decode the message at `position`, or all messages of a wrapper.

    Raises ProtocolError: CorruptBatch, and the errors of decompress. The CRC is not checked.
    """
    header = read_entry(buffer, position)
    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptBatch(f"{len(buffer) - position} of {header.size_bytes} bytes are there")
    key, value = _read_body(buffer, position, end, header.magic)
    if header.codec == Codec.NONE:
        return [Record(header.base_offset, header.max_timestamp, key, value)]
    if value is None:
        raise CorruptBatch("a compressed message without a value")
    if header.codec == Codec.LZ4 and header.magic == 0:
        value = _with_lz4_checksum(value)
    entries = list(_inner_entries(decompress(header.codec, value, max_decompressed)))
    if not entries:
        raise CorruptBatch("a compressed message without messages in it")
    base = 0
    # Some versions of librdkafka wrote wrappers with offset 0, which means "from 0 on".
    if header.magic == 1 and header.base_offset != 0:
        base = header.base_offset - entries[-1][0].base_offset
        if base < 0:
            raise CorruptBatch(
                f"a compressed message at offset {header.base_offset} whose last message "
                f"has the relative offset {entries[-1][0].base_offset}"
            )
    append_time = header.max_timestamp if header.is_log_append_time else None
    return [
        Record(
            wrap_int64(base + inner.base_offset),
            inner.max_timestamp if append_time is None or inner.magic == 0 else append_time,
            *key_and_value,
        )
        for inner, key_and_value in entries
    ]


def read_stored_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch, or of the entry of an older format, at `position`.

    Raises CorruptBatch; the CRC is not checked.
    """
    try:
        return read_header(buffer, position)
    except UnsupportedMagic:
        return read_entry(buffer, position)


def stored_crc(header: BatchHeader, data: Buffer) -> int:
    """Compute the CRC that the whole batch or entry with this header should have."""
    if header.magic == MAGIC:
        return batch_crc(data, 0, len(data))
    return zlib.crc32(memoryview(data)[_COVERED_POSITION:])


def decode_stored(
    buffer: Buffer, position: int = 0, max_decompressed: int = DECOMPRESSED_MAX_BYTES
) -> list[Record]:
    """Decode all records of the batch, or of the entry of an older format, at `position`.

    Raises ProtocolError. The CRC is not checked.
    """
    return list(iterate_stored(buffer, position, max_decompressed))


def iterate_stored(
    buffer: Buffer,
    position: int = 0,
    max_decompressed: int = DECOMPRESSED_MAX_BYTES,
    headers_max: int = _INT32_MAX,
    *,
    raw_headers: bool = False,
) -> Iterator[Record]:
    """Decode as decode_stored does, but yield the records of a batch one by one.

    `headers_max` and `raw_headers` are as in iterate_records.
    """
    try:
        return iterate_records(
            buffer, position, max_decompressed, headers_max, raw_headers=raw_headers
        )
    except UnsupportedMagic:
        return iter(decode_entry(buffer, position, max_decompressed))


def _inner_entries(
    data: bytes,
) -> Iterator[tuple[BatchHeader, tuple[bytes | None, bytes | None]]]:
    """Yield the head, key and value of each message in a decompressed set."""
    position = 0
    while position < len(data):
        header = read_entry(data, position)
        end = position + header.size_bytes
        if end > len(data):
            raise CorruptBatch("a message reaches past the end of its wrapper")
        if header.codec != Codec.NONE:
            raise CorruptBatch("a compressed message within a compressed message")
        yield header, _read_body(data, position, end, header.magic)
        position = end


def _read_body(
    buffer: Buffer, position: int, end: int, magic: int
) -> tuple[bytes | None, bytes | None]:
    """Read the key and the value of the entry between two positions."""
    at = position + (_TIMESTAMP_POSITION + _I64.size if magic else _TIMESTAMP_POSITION)
    key, at = _read_sized(buffer, at, end)
    value, at = _read_sized(buffer, at, end)
    if at != end:
        raise CorruptBatch(f"{end - at} bytes after a message's value")
    return key, value


def _read_sized(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    start = position + _I32.size
    if start > end:
        raise CorruptBatch("a message ends within a size")
    (size,) = _I32.unpack_from(buffer, position)
    if size == _NONE:
        return None, start
    if not 0 <= size <= end - start:
        raise CorruptBatch(f"a key or value of {size} bytes where {end - start} are left")
    return bytes(memoryview(buffer)[start : start + size]), start + size


# | magic u32 LE | flags u8 | block size u8 | content size u64? | checksum u8 | blocks |
# The checksum is bits 8-15 of the XXH32 of flags, block size and content size.
def _with_lz4_checksum(frame: bytes) -> bytes:
    """Return an lz4 frame with the right checksum in its header."""
    if len(frame) <= _LZ4_FLAGS_POSITION:
        return frame
    has_size = frame[_LZ4_FLAGS_POSITION] & _LZ4_CONTENT_SIZE_BIT
    at = _LZ4_FLAGS_POSITION + (10 if has_size else 2)
    checksum = _xxh32(frame[_LZ4_FLAGS_POSITION:at]) >> 8 & 0xFF
    return frame[:at] + bytes((checksum,)) + frame[at + 1 :]


def _xxh32(data: bytes) -> int:
    """Hash less than 16 bytes as XXH32 with seed 0 does (xxHash's specification)."""
    prime_1, prime_2, prime_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
    prime_4, prime_5 = 0x27D4EB2F, 0x165667B1
    words_end = len(data) & ~3
    value = prime_5 + len(data)
    for at in range(0, words_end, 4):
        value += int.from_bytes(data[at : at + 4], "little") * prime_3
        value = _rotated(value, 17) * prime_4
    for byte in data[words_end:]:
        value = _rotated(value + byte * prime_5, 11) * prime_1
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * prime_2 & 0xFFFFFFFF
    value = (value ^ value >> 13) * prime_3 & 0xFFFFFFFF
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return value << bits | value >> 32 - bits
