"""The keys and values of a batch's records, and nothing else of them: for replays of many.

Layout of a record (protocol/records.py has the whole of it); all but the attributes are varints:

    | size | attributes i8 | timestamp delta | offset delta | key size | key | value size | value
    | header count |

Of what is rare - sizes of 8 KiB and more, headers, damage - the decoder of batches takes care.
Measured in bench/offsets_replay.py.
"""

from __future__ import annotations

from protocol.batches import CODEC_MASK, HEADER_SIZE, MAGIC, BatchHeader, Record
from protocol.compression import Buffer, Codec
from protocol.legacy import decode_stored

KeyValue = tuple[bytes, bytes | None]

_MORE = 0x80  # another byte of the varint follows


def key_values(header: BatchHeader, data: Buffer) -> list[KeyValue]:
    """Return the keys and values of a batch's, or older entry's, records that have a key.

    Raises ProtocolError. The CRC is not checked.
    """
    if header.magic == MAGIC and header.attributes & CODEC_MASK == Codec.NONE:
        try:
            found = _read(bytes(data[HEADER_SIZE : header.size_bytes]), header.count)
        except IndexError:
            found = None
        if found is not None:
            return found
    return [_key_value(one) for one in decode_stored(data) if one.key is not None]


def _key_value(record: Record) -> KeyValue:
    assert record.key is not None
    return record.key, record.value


def _read(section: bytes, count: int) -> list[KeyValue] | None:
    """Read records in one loop without calls; None when one of them is rare.

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
