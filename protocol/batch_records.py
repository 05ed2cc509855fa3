"""Reads the records of a batch of magic 2 (drawn in protocol/batches.py): all, or one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from odradek.protocol.batches import (
    CODEC_MASK,
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    Headers,
    Record,
    read_header,
)
from odradek.protocol.compression import Buffer, Codec, unpack
from odradek.protocol.records_plain import (
    InvalidRecord,
    RecordParts,
    RecordStatus,
    decode_headers,
    locate_record,
    read_record,
    wrap_int64,
)

# As much as an uncompressed request of Kafka's default socket.request.max.bytes could hold.
DECOMPRESSED_MAX_BYTES = 100 * 1024 * 1024
# A record's number of headers has 32 bits.
_HEADERS_MAX = 2**31 - 1


def record_section(
    buffer: Buffer, position: int, header: BatchHeader, max_decompressed: int
) -> Buffer:
    """Return the records of the batch at `position`, decompressed, as one section.

    Uncompressed records are a view of the buffer. Raises CorruptBatch when the records are cut
    off, and the errors of decompress.
    """
    return unpack_section(buffer, position, header, max_decompressed)[0]


def unpack_section(
    buffer: Buffer, position: int, header: BatchHeader, max_decompressed: int
) -> tuple[Buffer, int]:
    """Return the section as record_section does, and the number of its compressed members."""
    start, end = position + HEADER_SIZE, position + header.size_bytes
    if end > len(buffer):
        raise CorruptBatch(f"{len(buffer) - start} of {end - start} bytes of records are there")
    section = memoryview(buffer)[start:end]
    if header.attributes & CODEC_MASK == Codec.NONE or header.count == 0:
        return section, 1
    return unpack(header.codec, section, max_decompressed)


def decode_records(
    buffer: Buffer, position: int = 0, max_decompressed: int = DECOMPRESSED_MAX_BYTES
) -> list[Record]:
    """Decode all records of the batch at `position`.

    They take some hundred times the memory of the compressed batch; iterate_records creates one
    at a time. Raises ProtocolError: CorruptBatch for the header, InvalidRecord for the records,
    and the errors of decompress. The CRC is not checked.
    """
    return list(iterate_records(buffer, position, max_decompressed))


def iterate_records(
    buffer: Buffer,
    position: int = 0,
    max_decompressed: int = DECOMPRESSED_MAX_BYTES,
    headers_max: int = _HEADERS_MAX,
    *,
    raw_headers: bool = False,
) -> Iterator[Record]:
    """Decode the records of the batch one by one, each with at most `headers_max` headers.

    Raises as decode_records does, but InvalidRecord only when it reaches the record. With
    `raw_headers` a record's headers are one header without a name, whose value is all their
    bytes, unchecked: a record may have millions, and some callers only compare them.
    """
    header = read_header(buffer, position)
    # One copy, so that each key and value is a plain slice of bytes.
    section = bytes(record_section(buffer, position, header, max_decompressed))
    if raw_headers:
        return _iterate(header, section, locate_record, _raw_headers)
    read_headers = partial(decode_headers, count_max=headers_max)
    return _iterate(header, section, read_record, read_headers)


def _iterate(
    header: BatchHeader,
    section: bytes,
    read: Callable[[bytes, int, int], RecordParts],
    read_headers: Callable[[bytes, int, int], Headers],
) -> Iterator[Record]:
    end = len(section)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    at = 0
    for _ in range(header.count):
        parts = read(section, at, end)
        at, delta, offset_delta, key_at, key_length, value_at, value_length, headers_at = parts
        yield Record(
            wrap_int64(base_offset + offset_delta),
            wrap_int64(base_timestamp + delta) if append_time is None else append_time,
            section[key_at : key_at + key_length] if key_length >= 0 else None,
            section[value_at : value_at + value_length] if value_length >= 0 else None,
            read_headers(section, headers_at, at) if section[headers_at] else (),
        )
    if at != end:
        raise InvalidRecord(RecordStatus.TRAILING_BYTES, f"{end - at} bytes after the last record")


def _raw_headers(section: bytes, position: int, end: int) -> Headers:
    return (("", section[position:end]),)
