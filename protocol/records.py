"""Numba kernels over the records of a batch: walk, validate, scan, search by time.

`protocol.records_plain` draws the format and states the same rules in plain Python; a property
test compares the two. An import of this module loads Numba and NumPy (57 MB, 0.4 s) and compiles
every kernel (3 s), or loads the code that an earlier run compiled into `__pycache__` (0.3 s). So
few modules import it, and they do so late and off the event loop. `warm_up` then runs each once.

All kernels release the interpreter's lock, and no bytes can make them read outside their
buffer. Kernels elsewhere may call the functions whose names begin with `read_`, which are as fast
as inline code. The callers of read_int16, read_int32 and read_int64 check that enough bytes are
there.
"""

from __future__ import annotations

import numpy as np

from odradek.protocol.compression import Buffer
from odradek.protocol.kernel import (
    BOOLEAN,
    BYTES,
    INT64,
    TABLE,
    Bytes,
    Table,
    as_bytes,
    int64,
    int64_tuple,
    kernel,
    uint64,
)
from odradek.protocol.records_plain import (
    MALFORMED,
    NOT_FOUND,
    InvalidRecord,
    RecordStatus,
    Validation,
)

# The columns of a scan's table, one row per record.
(
    SCAN_START,
    SCAN_END,
    SCAN_OFFSET_DELTA,
    SCAN_TIMESTAMP_DELTA,
    SCAN_KEY_POSITION,
    SCAN_KEY_LENGTH,  # -1 for null
    SCAN_VALUE_LENGTH,  # -1 for null
) = range(7)
SCAN_COLUMNS = 7

# Plain integers, as Numba compiles them fastest; RecordStatus explains them.
VALID = int(RecordStatus.VALID)
TRAILING_BYTES = int(RecordStatus.TRAILING_BYTES)
MISSING_RECORDS = int(RecordStatus.MISSING_RECORDS)
BAD_RANGE = int(RecordStatus.BAD_RANGE)
BAD_SIZE = int(RecordStatus.BAD_SIZE)
BAD_TIMESTAMP = int(RecordStatus.BAD_TIMESTAMP)
BAD_OFFSET = int(RecordStatus.BAD_OFFSET)
BAD_KEY = int(RecordStatus.BAD_KEY)
BAD_VALUE = int(RecordStatus.BAD_VALUE)
BAD_HEADERS = int(RecordStatus.BAD_HEADERS)
LEFTOVER = int(RecordStatus.LEFTOVER)
NULL_KEY = int(RecordStatus.NULL_KEY)
OFFSET_GAP = int(RecordStatus.OFFSET_GAP)

_RECORD_BYTES_MIN = 7  # one each for size, attributes, two deltas, two lengths, header count
_STATUSES = tuple(RecordStatus)


@kernel(INT64, BYTES, INT64)
def read_int16(buffer: Bytes, position: int) -> int:
    """Read a big-endian int16; the caller has checked that it is there."""
    raw = int64(buffer[position]) << 8 | int64(buffer[position + 1])
    return (raw ^ 0x8000) - 0x8000


@kernel(INT64, BYTES, INT64)
def read_int32(buffer: Bytes, position: int) -> int:
    """Read a big-endian int32; the caller has checked that it is there."""
    raw = int64(0)
    for index in range(4):
        raw = raw << 8 | int64(buffer[position + index])
    return (raw ^ 0x80000000) - 0x80000000


@kernel(INT64, BYTES, INT64)
def read_int64(buffer: Bytes, position: int) -> int:
    """Read a big-endian int64; the caller has checked that it is there."""
    raw = int64(0)
    for index in range(8):
        raw = raw << 8 | int64(buffer[position + index])
    return raw


@kernel(int64_tuple(2), BYTES, INT64, INT64)
def read_varint(buffer: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read a zig-zag varint before `end`; return it and the next position, -1 if malformed."""
    raw = int64(0)
    shift = int64(0)
    while position < end and shift < 35:
        byte = int64(buffer[position])
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= 0xFFFFFFFF
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    return int64(0), int64(-1)


@kernel(int64_tuple(2), BYTES, INT64, INT64)
def read_varlong(buffer: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read a zig-zag varlong before `end`; return it and the next position, -1 if malformed."""
    raw = uint64(0)
    shift = int64(0)
    while position < end and shift < 70:
        byte = uint64(buffer[position])
        position += 1
        raw |= (byte & uint64(0x7F)) << uint64(shift)
        if byte < uint64(0x80):
            return int64(raw >> uint64(1)) ^ -int64(raw & uint64(1)), position
        shift += 7
    return int64(0), int64(-1)


@kernel(INT64, BYTES, INT64, INT64)
def read_past_headers(buffer: Bytes, position: int, end: int) -> int:
    """Return the position after a record's headers, or -1 when they are malformed."""
    count, position = read_varint(buffer, position, end)
    if position < 0 or count < 0 or count > end - position:
        return -1
    for _ in range(count):
        length, position = read_varint(buffer, position, end)
        if position < 0 or length < 0 or length > end - position:
            return -1
        length, position = read_varint(buffer, position + length, end)
        if position < 0 or length > end - position:
            return -1
        position += max(length, 0)
    return position


@kernel(int64_tuple(9), BYTES, INT64, INT64)
def read_record(
    buffer: Bytes, position: int, end: int
) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Find the parts of the record at `position` in a section that ends at `end`.

    Returns its status, and if that is VALID: its end, timestamp delta, offset delta, key
    position and length, value position and length, and the position of its header count.
    """
    size, position = read_varint(buffer, position, end)
    if position < 0 or size <= 0 or size > end - position:
        return BAD_SIZE, 0, 0, 0, 0, 0, 0, 0, 0
    end = position + size
    timestamp_delta, position = read_varlong(buffer, position + 1, end)
    if position < 0:
        return BAD_TIMESTAMP, 0, 0, 0, 0, 0, 0, 0, 0
    offset_delta, position = read_varint(buffer, position, end)
    if position < 0:
        return BAD_OFFSET, 0, 0, 0, 0, 0, 0, 0, 0
    key_length, key_position = read_varint(buffer, position, end)
    if key_position < 0 or key_length > end - key_position:
        return BAD_KEY, 0, 0, 0, 0, 0, 0, 0, 0
    key_length = max(key_length, -1)
    value_length, value_position = read_varint(buffer, key_position + max(key_length, 0), end)
    if value_position < 0 or value_length > end - value_position:
        return BAD_VALUE, 0, 0, 0, 0, 0, 0, 0, 0
    value_length = max(value_length, -1)
    headers_position = value_position + max(value_length, 0)
    position = read_past_headers(buffer, headers_position, end)
    if position < 0:
        return BAD_HEADERS, 0, 0, 0, 0, 0, 0, 0, 0
    if position != end:
        return LEFTOVER, 0, 0, 0, 0, 0, 0, 0, 0
    return (
        VALID,
        end,
        timestamp_delta,
        offset_delta,
        key_position,
        key_length,
        value_position,
        value_length,
        headers_position,
    )


@kernel(int64_tuple(4), BYTES, INT64, INT64, INT64, BOOLEAN)
def validate_kernel(
    buffer: Bytes, start: int, end: int, count: int, require_keys: bool
) -> tuple[int, int, int, int]:
    """Validate a section of `count` records; return the fields of a Validation."""
    if start < 0 or end < start or end > buffer.size or count < 0:
        return BAD_RANGE, 0, 0, 0
    position = start
    delta_min = delta_max = int64(0)
    first_gap = first_null = int64(-1)
    for index in range(count):
        if position == end:
            return MISSING_RECORDS, index, delta_min, delta_max
        status, after, delta, offset_delta, _, key_length, _, _, _ = read_record(
            buffer, position, end
        )
        if status != VALID:
            return status, index, delta_min, delta_max
        position = after
        if index == 0 or delta > delta_max:
            delta_max = delta
        if index == 0 or delta < delta_min:
            delta_min = delta
        if require_keys and key_length < 0 and first_null < 0:
            first_null = index
        if offset_delta != index and first_gap < 0:
            first_gap = index
    if position != end:
        status, index = TRAILING_BYTES, count
    elif first_null >= 0:
        status, index = NULL_KEY, first_null
    elif first_gap >= 0:
        status, index = OFFSET_GAP, first_gap
    else:
        status, index = VALID, -1
    return status, index, delta_min, delta_max


@kernel(int64_tuple(2), BYTES, INT64, INT64, INT64, TABLE)
def scan_kernel(buffer: Bytes, start: int, end: int, count: int, table: Table) -> tuple[int, int]:
    """Fill a row of the table for each of `count` records; return the status and rows filled.

    The table needs SCAN_COLUMNS columns, and a row for each record; otherwise the status is
    BAD_RANGE. Offset deltas may have gaps.
    """
    if start < 0 or end < start or end > buffer.size or count < 0:
        return BAD_RANGE, 0
    if table.shape[1] != SCAN_COLUMNS:
        return BAD_RANGE, 0
    position = start
    for index in range(count):
        if position == end:
            return MISSING_RECORDS, index
        status, after, delta, offset_delta, key_position, key_length, _, value_length, _ = (
            read_record(buffer, position, end)
        )
        if status != VALID:
            return status, index
        if index >= table.shape[0]:
            return BAD_RANGE, index
        table[index, SCAN_START] = position
        table[index, SCAN_END] = after
        table[index, SCAN_OFFSET_DELTA] = offset_delta
        table[index, SCAN_TIMESTAMP_DELTA] = delta
        table[index, SCAN_KEY_POSITION] = key_position
        table[index, SCAN_KEY_LENGTH] = key_length
        table[index, SCAN_VALUE_LENGTH] = value_length
        position = after
    return (VALID if position == end else TRAILING_BYTES), count


@kernel(int64_tuple(2), BYTES, INT64, INT64, INT64, INT64, INT64, INT64)
def first_at_or_after_kernel(
    buffer: Bytes,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    timestamp: int,
    offset_delta_min: int,
) -> tuple[int, int]:
    """Find a record by time, as records_plain.first_at_or_after_plain does."""
    if start < 0 or end < start or end > buffer.size:
        return MALFORMED, 0
    position = start
    for _ in range(count):
        status, after, delta, offset_delta, _, _, _, _, _ = read_record(buffer, position, end)
        if status != VALID:
            return MALFORMED, 0
        found = base_timestamp + delta
        if found >= timestamp and offset_delta >= offset_delta_min:
            return offset_delta, found
        position = after
    return NOT_FOUND, 0


def validate_records(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    require_keys: bool,
    items_max: int = 0,
) -> Validation:
    """Check a section of `count` records as a broker must before it appends them.

    This does the same as records_plain.validate_records_plain, but a hundred times as fast, so
    the number of records and headers has no bound.
    """
    status, index, delta_min, delta_max = validate_kernel(
        as_bytes(buffer), start, end, count, require_keys
    )
    return Validation(_STATUSES[status], index, delta_min, delta_max)


def scan(buffer: Buffer, start: int, end: int, count: int) -> Table:
    """Return a table of a section's records, one row each, with the SCAN_ columns.

    Raises InvalidRecord when the section does not consist of `count` well-formed records.
    """
    # A false count allocates no more rows than there could be records.
    rows = max(0, min(count, (end - start) // _RECORD_BYTES_MIN))
    table = np.empty((rows, SCAN_COLUMNS), np.int64)
    status, index = scan_kernel(as_bytes(buffer), start, end, count, table)
    if status != VALID:
        reason = _STATUSES[status]
        raise InvalidRecord(reason, f"record {index} of {count}: {reason.name}")
    return table


def first_at_or_after(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    timestamp: int,
    offset_delta_min: int = 0,
) -> tuple[int, int]:
    """Find the first record at or after `timestamp` (ms) and `offset_delta_min`.

    It does the same as records_plain.first_at_or_after_plain.
    """
    return first_at_or_after_kernel(
        as_bytes(buffer), start, end, count, base_timestamp, timestamp, offset_delta_min
    )


def warm_up() -> None:
    """Run every kernel once, so that no later caller waits for it.

    The import of this module has already compiled the kernels, or loaded them from the cache.
    """
    nothing = bytes(8)
    array = as_bytes(nothing)
    read_int16(array, 0)
    read_int32(array, 0)
    read_int64(array, 0)
    read_varint(array, 0, 1)
    read_varlong(array, 0, 1)
    read_past_headers(array, 0, 1)
    read_record(array, 0, 8)
    validate_records(nothing, 0, 0, 0, True)
    scan(nothing, 0, 0, 0)
    first_at_or_after(nothing, 0, 0, 0, 0, 0)
