"""Writes messages of magic 0 and 1 as old Kafkas did; protocol/legacy.py draws the layouts."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from odradek.protocol.batches import LOG_APPEND_TIME_BIT, Record
from odradek.protocol.compression import Codec, compress
from odradek.protocol.legacy import _xxh32

_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_NONE = -1
_LZ4_CHECKSUM_POSITION = 6


def encode_entry(magic: int, record: Record, attributes: int = 0) -> bytes:
    """Encode a message of magic 0 or 1, which loses its headers, and its timestamp under 0."""
    parts = [
        bytes((magic, attributes)),
        _I64.pack(record.timestamp) if magic else b"",
        *_sized(record.key),
        *_sized(record.value),
    ]
    covered = b"".join(parts)
    crc = _U32.pack(zlib.crc32(covered))
    return b"".join((_I64.pack(record.offset), _I32.pack(len(crc) + len(covered)), crc, covered))


def encode_wrapper(
    magic: int, codec: Codec, records: Sequence[Record], append_time: int | None = None
) -> bytes:
    """Encode records as one compressed message, as Kafka's MemoryRecordsBuilder does.

    `append_time` (ms) then is the timestamp of all. Needs a record and a codec.
    """
    base = records[0].offset if magic else 0
    attributes = LOG_APPEND_TIME_BIT if magic and append_time is not None else 0
    inner = b"".join(
        encode_entry(
            magic,
            Record(
                record.offset - base,
                record.timestamp if append_time is None else append_time,
                record.key,
                record.value,
            ),
            attributes,
        )
        for record in records
    )
    value = compress(codec, inner)
    if codec == Codec.LZ4 and magic == 0:
        value = _with_broken_checksum(value)
    largest = max(r.timestamp for r in records) if append_time is None else append_time
    wrapper = Record(records[-1].offset, largest, None, value)
    return encode_entry(magic, wrapper, codec | attributes)


def _sized(data: bytes | None) -> tuple[bytes, bytes]:
    return (_I32.pack(_NONE), b"") if data is None else (_I32.pack(len(data)), data)


def _with_broken_checksum(frame: bytes) -> bytes:
    """Return an lz4 frame, without content size, with the header checksum of KAFKA-3160."""
    at = _LZ4_CHECKSUM_POSITION
    return frame[:at] + bytes((_xxh32(frame[:at]) >> 8 & 0xFF,)) + frame[at + 1 :]
