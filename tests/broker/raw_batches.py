"""Batches and records spelled out field by field, so that each may be wrong by itself.

    RawBatch(records=[RawRecord(), RawRecord(value=None)], last_offset_delta=5).encode()

A field that is None is what a producer would have written; CRC, sizes and counts are right
unless told otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from odradek.protocol.batches import HEADER, HEADER_SIZE, LOG_OVERHEAD, batch_crc
from odradek.protocol.compression import Codec, compress
from odradek.protocol.records_plain import encode_varint

INT8, INT16, INT32, INT64 = (1 << bits - 1 for bits in (8, 16, 32, 64))
NO_KEY = -1


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record; numbers may be given as the bytes of a varint."""

    size: int | bytes | None = None
    attributes: int = 0
    timestamp_delta: int | bytes = 0
    offset_delta: int | bytes | None = None  # None: its place in the batch
    key_length: int | bytes | None = None
    key: bytes | None = b"k"
    value_length: int | bytes | None = None
    value: bytes | None = b"v"
    header_count: int | bytes | None = None
    headers: bytes = b""  # as on the wire, without the count
    tail: bytes = b""  # within the record's size

    def encode(self, index: int) -> bytes:
        """Encode it as the batch's record of that index."""
        body = (
            bytes([self.attributes])
            + number(self.timestamp_delta)
            + number(index if self.offset_delta is None else self.offset_delta)
            + number(length(self.key) if self.key_length is None else self.key_length)
            + (self.key or b"")
            + number(length(self.value) if self.value_length is None else self.value_length)
            + (self.value or b"")
            + number(0 if self.header_count is None else self.header_count)
            + self.headers
            + self.tail
        )
        return number(len(body) if self.size is None else self.size) + body


@dataclass(frozen=True, slots=True)
class RawBatch:
    """A batch; `records` may also be a whole section, or what is said to be compressed."""

    records: Sequence[RawRecord] | bytes = (RawRecord(),)
    codec: int = Codec.NONE  # packs the records and tells so, unless `packed` is given
    level: int | None = None
    packed: bytes | None = None
    base_offset: int = 0
    length: int | None = None
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    flags: int = 0  # the attributes besides the codec
    last_offset_delta: int | None = None
    base_timestamp: int = -1
    max_timestamp: int | None = None  # None: that of the first record
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    count: int | None = None

    def encode(self) -> bytes:
        """Encode it."""
        count = len(self.records) if not isinstance(self.records, bytes) else 1
        packed = self.packed
        if packed is None:
            packed = compress(Codec(self.codec), section(self.records), self.level)
        last_delta = count - 1 if self.last_offset_delta is None else self.last_offset_delta
        header = HEADER.pack(
            self.base_offset,
            HEADER_SIZE - LOG_OVERHEAD + len(packed) if self.length is None else self.length,
            self.leader_epoch,
            self.magic,
            0,
            wrapped(self.codec | self.flags, INT16),
            last_delta,
            self.base_timestamp,
            self.base_timestamp if self.max_timestamp is None else self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            count if self.count is None else self.count,
        )
        made = bytearray(header + packed)
        if self.crc is None:
            fix_crc(made)
        else:
            struct.pack_into(">I", made, 17, self.crc)
        return bytes(made)


def section(records: Sequence[RawRecord] | bytes) -> bytes:
    """Encode records one after the other."""
    if isinstance(records, bytes):
        return records
    return b"".join(record.encode(index) for index, record in enumerate(records))


def fix_crc(batch: bytearray) -> None:
    """Give a batch the CRC that its bytes have."""
    if len(batch) >= HEADER_SIZE:
        struct.pack_into(">I", batch, 17, batch_crc(batch, 0, len(batch)))


def header_bytes(*headers: tuple[bytes, bytes | None]) -> bytes:
    """Encode a record's headers, without their count."""
    parts = []
    for key, value in headers:
        parts += [number(len(key)), key, number(length(value)), value or b""]
    return b"".join(parts)


def number(value: int | bytes) -> bytes:
    """Encode a varint, or take its bytes as they are."""
    return value if isinstance(value, bytes) else encode_varint(value)


def length(octets: bytes | None) -> int:
    """Return the length that stands before octets."""
    return NO_KEY if octets is None else len(octets)


def wrapped(value: int, half: int) -> int:
    """Bring a number into the range [-half, half)."""
    return (value + half) % (2 * half) - half
