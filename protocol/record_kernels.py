"""Compiled kernels that find records in a section: the twins of protocol/record_places.py.

Importing this module loads Numba, as protocol.records does.
"""

from __future__ import annotations

import numpy as np

from odradek.protocol.kernel import (
    BYTES,
    INT64,
    INT64S,
    Bytes,
    Table,
    as_bytes,
    int64_tuple,
    kernel,
)
from odradek.protocol.records import (
    BAD_KEY,
    BAD_OFFSET,
    BAD_SIZE,
    BAD_TIMESTAMP,
    BAD_VALUE,
    MISSING_RECORDS,
    TRAILING_BYTES,
    VALID,
    read_varint,
    read_varlong,
)
from odradek.protocol.records_plain import InvalidRecord, RecordStatus


@kernel(INT64, BYTES, INT64, INT64, INT64S)
def places_kernel(section: Bytes, count: int, step: int, found: Table) -> int:
    """Fill an array with the positions of every `step`-th record; return a status."""
    position, end = 0, section.size
    for index in range(count):
        if position == end:
            return MISSING_RECORDS
        if index % step == 0 and index // step < found.size:
            found[index // step] = position
        size, position = read_varint(section, position, end)
        if position < 0 or size <= 0 or size > end - position:
            return BAD_SIZE
        position += size
    return VALID if position == end else TRAILING_BYTES


@kernel(int64_tuple(2), BYTES, INT64, BYTES)
def last_with_key_kernel(section: Bytes, count: int, key: Bytes) -> tuple[int, int]:
    """Return a status, and the position of the last record with a key, or -1."""
    found, start, end = -1, 0, section.size
    for _ in range(count):
        if start == end:
            return MISSING_RECORDS, -1
        size, position = read_varint(section, start, end)
        if position < 0 or size <= 0 or size > end - position:
            return BAD_SIZE, -1
        record_end = position + size
        _, position = read_varlong(section, position + 1, record_end)
        if position < 0:
            return BAD_TIMESTAMP, -1
        _, position = read_varint(section, position, record_end)
        if position < 0:
            return BAD_OFFSET, -1
        length, position = read_varint(section, position, record_end)
        if position < 0 or length > record_end - position:
            return BAD_KEY, -1
        if length == key.size:
            at = 0
            while at < length and section[position + at] == key[at]:
                at += 1
            if at == length:
                found = start
        value_length, position = read_varint(section, position + max(length, 0), record_end)
        if position < 0 or value_length > record_end - position:
            return BAD_VALUE, -1
        start = record_end
    return (VALID if start == end else TRAILING_BYTES), found


def places(section: bytes, count: int, step: int) -> list[int]:
    """Return the positions of every `step`-th record, as record_places.places_plain does."""
    # A false count allocates no more rows than there could be records.
    rows = min(-(-count // step), len(section) // step + 1)
    found = np.zeros(rows, np.int64)
    _check(places_kernel(as_bytes(section), count, step, found))
    return [int(one) for one in found]


def last_with_key(section: bytes, count: int, key: bytes) -> int:
    """Return the position of the last record with a key, as the plain twin does."""
    status, found = last_with_key_kernel(as_bytes(section), count, as_bytes(key))
    _check(status)
    return int(found)


def _check(status: int) -> None:
    if status != VALID:
        raise InvalidRecord(RecordStatus(status))
