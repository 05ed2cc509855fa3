"""The walk over batches that lie back to back, and the table that it fills for other kernels.

A chunk is some megabytes of a segment; a table has a row for each batch in it. The kernel
releases the interpreter's lock and never reads outside its buffer.
"""

from __future__ import annotations

from odradek.protocol.batches import HEADER_SIZE, LOG_OVERHEAD
from odradek.protocol.intrinsics import crc32c
from odradek.protocol.kernel import BOOLEAN, BYTES, INT64, TABLE, Bytes, Table, int64_tuple, kernel
from odradek.protocol.records import read_int16, read_int32, read_int64

# The columns of a table of batches.
(
    POSITION,  # in the chunk
    SIZE,
    BASE_OFFSET,
    LAST_OFFSET,
    ATTRIBUTES,
    COUNT,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    BASE_SEQUENCE,
    LEADER_EPOCH,
) = range(12)
BATCH_COLUMNS = 12

# The outcome of a walk over batches, or over records.
WHOLE, BAD_LENGTH, BAD_MAGIC, BAD_HEADER, BAD_CRC, BAD_OFFSET, BAD_RECORD, FULL = range(8)
PROBLEMS = {
    BAD_LENGTH: "a batch's length is impossible",
    BAD_MAGIC: "a batch of a format other than magic 2",
    BAD_HEADER: "no batch has such a header",
    BAD_CRC: "a batch's CRC does not match its bytes",
    BAD_OFFSET: "a batch's offsets do not follow those of the batch before it",
    BAD_RECORD: "a malformed record, or a number of records other than the batch states",
}

_MAGIC = 2
_CODEC_MAX = 4
_CODEC_MASK = 7


@kernel(int64_tuple(3), BYTES, INT64, INT64, INT64, BOOLEAN, TABLE)
def scan_batches(
    data: Bytes, start: int, end: int, offset_min: int, checks_crc: bool, batches: Table
) -> tuple[int, int, int]:
    """Fill the table with the whole batches between two positions; check their CRCs on request.

    Returns the status, the number of rows filled, and the position of the first batch not taken:
    because rows ran out or it is not whole (WHOLE), or for the reason that the status gives.
    """
    if start < 0 or end > data.size or batches.shape[1] != BATCH_COLUMNS:
        return BAD_HEADER, 0, start
    position = start
    row = 0
    while position + HEADER_SIZE <= end and row < batches.shape[0]:
        size = read_int32(data, position + 8) + LOG_OVERHEAD
        if data[position + 16] != _MAGIC:
            return BAD_MAGIC, row, position
        if size < HEADER_SIZE:
            return BAD_LENGTH, row, position
        if position + size > end:
            break
        if checks_crc:
            stored = read_int32(data, position + 17) & 0xFFFFFFFF
            if crc32c(data, position + 21, position + size) != stored:
                return BAD_CRC, row, position
        base_offset = read_int64(data, position)
        attributes = read_int16(data, position + 21)
        last_delta = read_int32(data, position + 23)
        count = read_int32(data, position + 57)
        if last_delta < 0 or count < 0 or (attributes & _CODEC_MASK) > _CODEC_MAX:
            return BAD_HEADER, row, position
        if base_offset < offset_min or base_offset > 2**62:
            return BAD_OFFSET, row, position
        batches[row, POSITION] = position
        batches[row, SIZE] = size
        batches[row, BASE_OFFSET] = base_offset
        batches[row, LAST_OFFSET] = base_offset + last_delta
        batches[row, ATTRIBUTES] = attributes
        batches[row, COUNT] = count
        batches[row, BASE_TIMESTAMP] = read_int64(data, position + 27)
        batches[row, MAX_TIMESTAMP] = read_int64(data, position + 35)
        batches[row, PRODUCER_ID] = read_int64(data, position + 43)
        batches[row, PRODUCER_EPOCH] = read_int16(data, position + 51)
        batches[row, BASE_SEQUENCE] = read_int32(data, position + 53)
        batches[row, LEADER_EPOCH] = read_int32(data, position + 12)
        offset_min = base_offset + last_delta + 1
        position += size
        row += 1
    return WHOLE, row, position
