"""The keys and values of a batch's records, and nothing else: for replays of many records.

Layout of a record (complete in protocol/records.py); all but the attributes are varints:

    | size | attributes i8 | timestamp delta | offset delta | key size | key | value size | value
    | header count |

The decoder of batches handles the rare cases: sizes of 8 KiB and more, headers, damage. Measured
in bench/offsets_replay.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.protocol.batch_records import DECOMPRESSED_MAX_BYTES
from odradek.protocol.batches import CODEC_MASK, HEADER_SIZE, MAGIC, BatchHeader, Record
from odradek.protocol.compression import Buffer, Codec
from odradek.protocol.legacy import decode_stored
from odradek.protocol.records_plain import InvalidRecord, RecordStatus, read_varint

KeyValue = tuple[bytes, bytes | None]

_MORE = 0x80  # another byte of the varint follows


def key_values(
    header: BatchHeader, data: Buffer, max_decompressed: int = DECOMPRESSED_MAX_BYTES
) -> list[KeyValue]:
    """Return the keys and values of the records with a key in a batch or older entry.

    Raises ProtocolError. The CRC is not checked.
    """
    if header.magic == MAGIC and header.attributes & CODEC_MASK == Codec.NONE:
        try:
            found = _read(bytes(data[HEADER_SIZE : header.size_bytes]), header.count)
        except IndexError:
            found = None
        if found is not None:
            return found
    decoded = decode_stored(data, 0, max_decompressed)
    return [_key_value(one) for one in decoded if one.key is not None]


def key_values_in_pieces(
    section: bytes, count: int, piece_count: int
) -> Iterator[list[KeyValue]]:
    """Yield the keys and values of a batch's decompressed records, `piece_count` at a time.

    A section of some kilobytes may have been packed into one batch a thousand times over, so only
    the keys and values of the next piece are created. A piece leaves out records without a key,
    and headers are skipped unread. Raises InvalidRecord at the first malformed record, after the
    pieces before it.
    """
    found: list[KeyValue] = []
    at, end = 0, len(section)
    for number in range(1, count + 1):
        size, at = read_varint(section, at, end)
        if at < 0 or not 0 < size <= end - at:
            yield found
            raise InvalidRecord(RecordStatus.BAD_SIZE)
        after = at + size
        key, value = _in_record(section, at + 1, after)
        if key is not None:
            found.append((key, value))
        if number % piece_count == 0:
            yield found
            found = []
        at = after
    yield found


def _in_record(section: bytes, at: int, end: int) -> tuple[bytes | None, bytes | None]:
    """Read a record's key and value after its attributes; raises InvalidRecord."""
    for _ in range(2):  # the deltas of its timestamp and offset
        while at < end and section[at] >= _MORE:
            at += 1
        at += 1
    key, at = _octets(section, at, end, RecordStatus.BAD_KEY)
    value, _ = _octets(section, at, end, RecordStatus.BAD_VALUE)
    return key, value


def _octets(
    section: bytes, at: int, end: int, status: RecordStatus
) -> tuple[bytes | None, int]:
    size, at = read_varint(section, at, end)
    if at < 0 or size > end - at:
        raise InvalidRecord(status)
    return (None, at) if size < 0 else (section[at : at + size], at + size)


def _key_value(record: Record) -> KeyValue:
    assert record.key is not None
    return record.key, record.value


def _read(section: bytes, count: int) -> list[KeyValue] | None:
    """Read records in one loop without calls; return None when one of them is a rare case.

    Raises IndexError when the section is cut off.
    """
    found: list[KeyValue] = []
    at = 0
    for _ in range(count):
        size = section[at]
        at += 1
        if size >= _MORE:
            high = section[at]
            at += 1
            if high >= _MORE:
                return None
            size += (high << 7) - _MORE
        end = at + (size >> 1)
        at += 1
        while section[at] >= _MORE:
            at += 1
        at += 1
        while section[at] >= _MORE:
            at += 1
        at += 1
        size = section[at]
        at += 1
        if size >= _MORE:
            high = section[at]
            at += 1
            if high >= _MORE:
                return None
            size += (high << 7) - _MORE
        if size & 1:
            return None
        key = section[at : at + (size >> 1)]
        at += size >> 1
        size = section[at]
        at += 1
        if size >= _MORE:
            high = section[at]
            at += 1
            if high >= _MORE:
                return None
            size += (high << 7) - _MORE
        if size & 1:
            if size != 1:
                return None
            found.append((key, None))
        else:
            found.append((key, section[at : at + (size >> 1)]))
            at += size >> 1
        if at != end - 1 or section[at]:
            return None
        at = end
    return found if at == len(section) else None
