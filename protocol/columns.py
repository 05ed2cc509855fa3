"""Numba kernels that lay the records of many batches out in columns.

`read_rows` walks the records of a table's batches and notes the places of each record's parts;
`read_headers` does the same for the headers of some records. `gather` then copies one part of
all rows into a buffer, back to back, as columnar formats such as Arrow's keep them:

    offsets  | 0 | end of the first | end of the second | …      int32
    data     | the first | the second | …                        a null takes nothing

All of them release the interpreter's lock, and no bytes can make them read outside their buffer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from odradek.protocol.batch_scan import (
    ATTRIBUTES,
    BAD_RECORD,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    MAX_TIMESTAMP,
    WHOLE,
)
from odradek.protocol.batches import LOG_APPEND_TIME_BIT
from odradek.protocol.intrinsics import copy_bytes
from odradek.protocol.kernel import (
    BOOLEAN,
    BYTES,
    INT64,
    INT64S,
    TABLE,
    UINT8S,
    Bytes,
    Table,
    int64_tuple,
    kernel,
)
from odradek.protocol.records import VALID, read_record, read_varint

Numbers = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]

INT32S = types.int32[::1]

# The fields of a record, one line of the table each: the values of one field lie together.
(
    ROW_BATCH,  # its row in the table of batches
    ROW_OFFSET,
    ROW_TIMESTAMP,  # ms
    ROW_SIZE,  # in its uncompressed batch, the size's own bytes included
    ROW_KEY_POSITION,
    ROW_KEY_LENGTH,  # -1 for null
    ROW_VALUE_POSITION,
    ROW_VALUE_LENGTH,  # -1 for null
    ROW_HEADERS_POSITION,  # of the first one
    ROW_HEADERS_COUNT,
) = range(10)
ROW_FIELDS = 10

# The fields of a header, likewise.
HEADER_KEY_POSITION, HEADER_KEY_LENGTH, HEADER_VALUE_POSITION, HEADER_VALUE_LENGTH = range(4)
HEADER_FIELDS = 4


@kernel(int64_tuple(3), BYTES, TABLE, INT64, INT64S, INT64S, INT64S, TABLE)
def read_rows(
    data: Bytes,
    batches: Table,
    first: int,
    starts: Numbers,
    ends: Numbers,
    bounds: Numbers,
    rows: Table,
) -> tuple[int, int, int]:
    """Note the records of the batches from row `first` on that lie within the bounds.

    The uncompressed records of each batch lie in the buffer between its start and its end. The
    bounds are the first and the last offset, then the first and the last timestamp (ms).
    Returns the status, the batch where it stopped and the rows filled, without rows of that
    batch: BAD_RECORD for a malformed batch, or for one that does not fit into the table.
    """
    filled = 0
    if rows.shape[0] != ROW_FIELDS or bounds.size != 4:
        return BAD_RECORD, first, 0
    for batch in range(first, batches.shape[0]):
        before = filled
        position, end = starts[batch], ends[batch]
        if position < 0 or end < position or end > data.size:
            return BAD_RECORD, batch, before
        has_append_time = batches[batch, ATTRIBUTES] & LOG_APPEND_TIME_BIT
        for _ in range(batches[batch, COUNT]):
            status, after, delta, offset_delta, key, key_length, value, value_length, headers = (
                read_record(data, position, end)
            )
            if status != VALID or filled >= rows.shape[1]:
                return BAD_RECORD, batch, before
            size = after - position
            position = after
            offset = batches[batch, BASE_OFFSET] + offset_delta
            timestamp = batches[batch, BASE_TIMESTAMP] + delta
            if has_append_time:
                timestamp = batches[batch, MAX_TIMESTAMP]
            if not (bounds[0] <= offset <= bounds[1] and bounds[2] <= timestamp <= bounds[3]):
                continue
            header_count, headers = read_varint(data, headers, after)
            rows[ROW_BATCH, filled] = batch
            rows[ROW_OFFSET, filled] = offset
            rows[ROW_TIMESTAMP, filled] = timestamp
            rows[ROW_SIZE, filled] = size
            rows[ROW_KEY_POSITION, filled] = key
            rows[ROW_KEY_LENGTH, filled] = key_length
            rows[ROW_VALUE_POSITION, filled] = value
            rows[ROW_VALUE_LENGTH, filled] = value_length
            rows[ROW_HEADERS_POSITION, filled] = headers
            rows[ROW_HEADERS_COUNT, filled] = header_count
            filled += 1
        if position != end:
            return BAD_RECORD, batch, before
    return WHOLE, batches.shape[0], filled


@kernel(INT64, BYTES, INT64S, INT64S, TABLE)
def read_headers(data: Bytes, positions: Numbers, counts: Numbers, headers: Table) -> int:
    """Note the headers of records, `counts` of each from its position on; return their number."""
    filled = 0
    for row in range(positions.size):
        position = positions[row]
        if position < 0:
            return filled
        for _ in range(counts[row]):
            key_length, key = read_varint(data, position, data.size)
            if key < 0 or not 0 <= key_length <= data.size - key or filled >= headers.shape[1]:
                return filled
            value_length, value = read_varint(data, key + key_length, data.size)
            if value < 0 or value_length > data.size - value:
                return filled
            headers[HEADER_KEY_POSITION, filled] = key
            headers[HEADER_KEY_LENGTH, filled] = key_length
            headers[HEADER_VALUE_POSITION, filled] = value
            headers[HEADER_VALUE_LENGTH, filled] = max(value_length, -1)
            position = value + max(value_length, 0)
            filled += 1
    return filled


@kernel(BOOLEAN, BYTES, INT64S, INT64S, INT32S, UINT8S)
def gather(
    data: Bytes, positions: Numbers, lengths: Numbers, offsets: Offsets, out: Bytes
) -> bool:
    """Copy one part of each row into a buffer, and fill the offsets, which number one more.

    A length of -1 stands for null. Returns False when a part lies outside the data, or when
    the buffer has no room for it.
    """
    end = 0
    offsets[0] = 0
    for row in range(positions.size):
        length = lengths[row]
        if length > 0:
            position = positions[row]
            if position < 0 or position > data.size - length or length > out.size - end:
                return False
            copy_bytes(out, end, data, position, length)
            end += length
        offsets[row + 1] = end
    return True
