"""The records inside a batch, read and written in plain Python.

After its header, and once decompressed, a batch holds a section: its records, one after the
other, each written as its size and then as many bytes:

    size           varint    bytes after this field, up to the next record
    attributes     i8        unused, always 0 so far
    timestampDelta varlong   milliseconds since the batch's base timestamp
    offsetDelta    varint    since the batch's base offset
    keyLength      varint    negative for a null key
    key            bytes
    valueLength    varint    negative for a null value, which is a tombstone
    value          bytes
    headers        varint    their count; then for each:
        keyLength   varint   never negative
        key         bytes    UTF-8
        valueLength varint   negative for null
        value       bytes

Varints are Protocol Buffers' zig-zag ones, of at most 5 bytes (varint) or 10 (varlong).

This module states the rules once in readable form. `protocol.records` has the same rules as
compiled kernels, which are some hundred times faster but take a while to load. Until then, and
in the tests that compare the two, these functions are used.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import TypeAlias

from odradek.dataclass import dataclass
from odradek.protocol.compression import Buffer
from odradek.protocol.errors import ProtocolError

# A record's end, timestamp delta, offset delta, key position and length, value position and
# length, and the position of its header count. A length is -1 for null.
RecordParts: TypeAlias = tuple[int, int, int, int, int, int, int, int]

NOT_FOUND = -1
MALFORMED = -2

_VARINT_MAX_BYTES = 5
_VARLONG_MAX_BYTES = 10
NO_LIMIT = 1 << 62
_SMALL_VARINTS = tuple(bytes([n << 1]) for n in range(64))
_NULL = b"\x01"  # -1
_INT32_MAX = 2**31 - 1


class RecordStatus(IntEnum):
    """The outcome of a walk through a section."""

    VALID = 0
    TRAILING_BYTES = 1  # bytes after the last record
    MISSING_RECORDS = 2  # the section ends before the last record
    BAD_RANGE = 3  # no such section in the buffer, or a negative count
    BAD_SIZE = 4  # a record's size is malformed, or does not fit in the section
    BAD_TIMESTAMP = 5  # malformed timestamp delta
    BAD_OFFSET = 6  # malformed offset delta
    BAD_KEY = 7  # key length malformed, or past the record's end
    BAD_VALUE = 8  # value length malformed, or past the record's end
    BAD_HEADERS = 9  # headers malformed, or past the record's end
    LEFTOVER = 10  # a record is larger than its fields
    NULL_KEY = 11  # a key is required (compacted topics) and a record has none
    OFFSET_GAP = 12  # offset deltas are not 0, 1, 2 ..., as producers must send them


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of a section's validation.

    When a record is malformed, `index` is that of the first such record, and the other fields
    describe the records before it. Otherwise `index` is the first record with a null key or a
    wrong offset.
    """

    status: RecordStatus
    index: int  # -1 when valid
    timestamp_delta_min: int  # 0 when there are no records
    timestamp_delta_max: int
    # How many records and headers were read in plain Python; 0 from a kernel.
    items: int = field(default=0, compare=False)


class TooManyItems(Exception):
    """More records and headers than the caller wants to read in plain Python."""


class InvalidRecord(ProtocolError):
    """A record, or a section of records, that breaks the format (Kafka's INVALID_RECORD)."""

    def __init__(self, status: RecordStatus, message: str | None = None) -> None:
        super().__init__(message or f"a malformed record: {status.name}")
        self.status = status


def read_varint(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a zig-zag varint; return it and the position after it, -1 if it is malformed."""
    if position < end and (byte := buffer[position]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw, position = _read_groups(buffer, position, end, _VARINT_MAX_BYTES)
    raw &= 0xFFFFFFFF  # Kafka's ByteUtils drops the excess bits of the fifth byte
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(buffer: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a zig-zag varlong; return it and the position after it, -1 if it is malformed."""
    if position < end and (byte := buffer[position]) < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw, position = _read_groups(buffer, position, end, _VARLONG_MAX_BYTES)
    raw &= 0xFFFFFFFFFFFFFFFF
    return (raw >> 1) ^ -(raw & 1), position


def read_record(
    buffer: Buffer, position: int, end: int, headers_max: int = NO_LIMIT
) -> RecordParts:
    """Find the parts of the record at `position` in a section that ends at `end`.

    Raises InvalidRecord when the record breaks the format (Kafka's DefaultRecord.readFrom);
    TooManyItems before it reads more headers than `headers_max`.
    """
    parts = locate_record(buffer, position, end)
    if _skip_headers(buffer, parts[7], parts[0], headers_max) != parts[0]:
        raise InvalidRecord(RecordStatus.LEFTOVER)
    return parts


def locate_record(buffer: Buffer, position: int, end: int) -> RecordParts:
    """Find the parts of a record as read_record does, without reading its headers.

    A record may have millions of headers, and its size gives its end.
    """
    size, position = read_varint(buffer, position, end)
    if position < 0 or not 0 < size <= end - position:
        raise InvalidRecord(RecordStatus.BAD_SIZE)
    end = position + size
    timestamp_delta, position = read_varlong(buffer, position + 1, end)
    if position < 0:
        raise InvalidRecord(RecordStatus.BAD_TIMESTAMP)
    offset_delta, position = read_varint(buffer, position, end)
    if position < 0:
        raise InvalidRecord(RecordStatus.BAD_OFFSET)
    key_length, key_position = read_varint(buffer, position, end)
    if key_position < 0 or key_length > end - key_position:
        raise InvalidRecord(RecordStatus.BAD_KEY)
    position = key_position
    if key_length >= 0:
        position += key_length
    else:
        key_length = -1
    value_length, value_position = read_varint(buffer, position, end)
    if value_position < 0 or value_length > end - value_position:
        raise InvalidRecord(RecordStatus.BAD_VALUE)
    headers_position = value_position
    if value_length >= 0:
        headers_position += value_length
    else:
        value_length = -1
    if headers_position == end:  # their count takes at least one byte
        raise InvalidRecord(RecordStatus.BAD_HEADERS)
    return (
        end,
        timestamp_delta,
        offset_delta,
        key_position,
        key_length,
        value_position,
        value_length,
        headers_position,
    )


def locate_headers(
    buffer: Buffer, position: int, end: int, count_max: int
) -> tuple[int, list[tuple[int, int, int, int]]]:
    """Return the count of a record's headers, and the places of the first `count_max` of them.

    `position` and `end` are the record's headers_position and end. A header's place is the
    position and length of its key, then the position and length of its value, which is -1 for
    null. Raises InvalidRecord when one of these headers is malformed; the others are not read.
    """
    count, position = read_varint(buffer, position, end)
    if position < 0 or not 0 <= count <= end - position:
        raise InvalidRecord(RecordStatus.BAD_HEADERS)
    found = []
    for _ in range(min(count, count_max)):
        key_length, key_position = read_varint(buffer, position, end)
        if key_position < 0 or not 0 <= key_length <= end - key_position:
            raise InvalidRecord(RecordStatus.BAD_HEADERS)
        length, value_position = read_varint(buffer, key_position + key_length, end)
        if value_position < 0 or length > end - value_position:
            raise InvalidRecord(RecordStatus.BAD_HEADERS)
        found.append((key_position, key_length, value_position, max(length, -1)))
        position = value_position + max(length, 0)
    return count, found


def decode_headers(
    buffer: bytes, position: int, end: int, count_max: int = _INT32_MAX
) -> tuple[tuple[str, bytes | None], ...]:
    """Decode at most `count_max` headers of a record that read_record has found well formed.

    `position` and `end` are the record's headers_position and end. Bytes in a header's key
    that are not UTF-8 become surrogate escapes, so that encode_record restores them.
    """
    headers: list[tuple[str, bytes | None]] = []
    count, position = read_varint(buffer, position, end)
    for _ in range(min(count, count_max)):
        length, position = read_varint(buffer, position, end)
        key = buffer[position : position + length].decode("utf-8", "surrogateescape")
        length, position = read_varint(buffer, position + length, end)
        headers.append((key, buffer[position : position + length] if length >= 0 else None))
        position += max(length, 0)
    return tuple(headers)


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> bytes:
    """Encode one record, beginning with its size. The deltas are int32 and int64 in a batch."""
    parts = [
        b"\x00",
        encode_varint(timestamp_delta),
        encode_varint(offset_delta),
        _octets(key),
        _octets(value),
        encode_varint(len(headers)),
    ]
    for name, octets in headers:
        parts.append(_octets(name.encode("utf-8", "surrogateescape")))
        parts.append(_octets(octets))
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def encode_varint(value: int) -> bytes:
    """Encode a zig-zag varint (of an int32) or varlong (of an int64): only the range differs."""
    if 0 <= value < 64:
        return _SMALL_VARINTS[value]
    raw = value << 1 ^ value >> 63
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def validate_records_plain(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    require_keys: bool,
    items_max: int = NO_LIMIT,
) -> Validation:
    """Check a section of `count` records as a broker must before it appends them.

    The kernel `protocol.records.validate_records` gives the same answer. A malformed record
    outweighs a null key, which outweighs an offset gap. Raises TooManyItems before it reads
    more records and headers than `items_max`.
    """
    if not 0 <= start <= end <= len(buffer) or count < 0:
        return Validation(RecordStatus.BAD_RANGE, 0, 0, 0)
    status, position, index = RecordStatus.VALID, start, 0
    deltas: list[int] = []
    items_left = items_max
    first_null = first_gap = -1
    while index < count:
        if position == end:
            status = RecordStatus.MISSING_RECORDS
            break
        if items_left <= 0:
            raise TooManyItems
        try:
            record = read_record(buffer, position, end, items_left)
        except InvalidRecord as bad:
            status = bad.status
            break
        position, timestamp_delta, offset_delta, _, key_length, _, _, headers_position = record
        items_left -= 1
        if buffer[headers_position]:
            items_left -= read_varint(buffer, headers_position, end)[0]
        deltas.append(timestamp_delta)
        if require_keys and key_length < 0 and first_null < 0:
            first_null = index
        if first_gap < 0 and offset_delta != index:
            first_gap = index
        index += 1
    else:
        if position != end:
            status = RecordStatus.TRAILING_BYTES
        elif first_null >= 0:
            status, index = RecordStatus.NULL_KEY, first_null
        elif first_gap >= 0:
            status, index = RecordStatus.OFFSET_GAP, first_gap
        else:
            index = -1
    earliest, latest = min(deltas, default=0), max(deltas, default=0)
    return Validation(status, index, earliest, latest, items_max - items_left)


def first_at_or_after_plain(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    timestamp: int,
    offset_delta_min: int = 0,
) -> tuple[int, int]:
    """Find the first record at or after `timestamp` (ms) and `offset_delta_min`.

    Returns its offset delta and its timestamp; NOT_FOUND or MALFORMED as the offset delta when
    there is none, or when a malformed record comes first (FileRecords.searchForTimestamp).
    """
    if not 0 <= start <= end <= len(buffer):
        return MALFORMED, 0
    position = start
    for _ in range(count):
        try:
            record = read_record(buffer, position, end)
        except InvalidRecord:
            return MALFORMED, 0
        position, timestamp_delta, offset_delta, *_ = record
        found = wrap_int64(base_timestamp + timestamp_delta)
        if found >= timestamp and offset_delta >= offset_delta_min:
            return offset_delta, found
    return NOT_FOUND, 0


def wrap_int64(value: int) -> int:
    """Wrap a sum into the range of an int64, as addition in Java and in kernels does."""
    if -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        return value
    return (value + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def _octets(octets: bytes | None) -> bytes:
    return _NULL if octets is None else encode_varint(len(octets)) + octets


def _read_groups(buffer: Buffer, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    """Read groups of seven bits, the least significant first, up to one without the top bit."""
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        if position >= end:
            return 0, -1
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    return 0, -1


def _skip_headers(buffer: Buffer, position: int, end: int, headers_max: int) -> int:
    """Return the position after a record's headers; raises InvalidRecord, TooManyItems."""
    count, position = read_varint(buffer, position, end)
    # A header takes at least two bytes, but Kafka compares with one.
    if position < 0 or not 0 <= count <= end - position:
        raise InvalidRecord(RecordStatus.BAD_HEADERS)
    if count > headers_max:
        raise TooManyItems
    for _ in range(count):
        length, position = read_varint(buffer, position, end)
        if position < 0 or not 0 <= length <= end - position:
            raise InvalidRecord(RecordStatus.BAD_HEADERS)
        length, position = read_varint(buffer, position + length, end)
        if position < 0 or length > end - position:
            raise InvalidRecord(RecordStatus.BAD_HEADERS)
        position += max(length, 0)
    return position
