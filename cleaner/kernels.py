"""Numba kernels over whole chunks of a log: walk the batches, index their keys, judge records.

A chunk is some megabytes of a segment, a table has a row for each batch in it. What the kernels
decide is stated in plain Python in cleaner/keep.py and cleaner/offset_map.py, and tests hold the
two together. All of them release the interpreter's lock and never read outside their buffer.

The map from key to offset is an array of two words a slot, probed linearly:

    word 0    hash bits 0-63
    word 1    hash bits 64-95 in the upper half | offset - start offset + 1 in the lower; 0: free
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
from numba import types

from cleaner.intrinsics import (
    Words,
    crc32c,
    load_uint64,
    multiply_high,
    prefetch,
)
from protocol.batches import DELETE_HORIZON_BIT, HEADER_SIZE, LOG_OVERHEAD
from protocol.records import (
    BYTES,
    INT64,
    INT64S,
    TABLE,
    VALID,
    Bytes,
    Table,
    int64,
    int64_tuple,
    kernel,
    read_int16,
    read_int32,
    read_int64,
    read_record,
    uint64,
)

UINT64 = types.uint64
UINT64S = types.uint64[::1]
UINT64_TRIPLE = cast(Any, types).Tuple((UINT64, UINT64, UINT64))
UINT8S = types.uint8[::1]

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
) = range(10)
BATCH_COLUMNS = 10

# What a walk over batches, or records, found.
WHOLE, BAD_LENGTH, BAD_MAGIC, BAD_HEADER, BAD_CRC, BAD_OFFSET, BAD_RECORD, FULL = range(8)
PROBLEMS = {
    BAD_LENGTH: "a batch's length is impossible",
    BAD_MAGIC: "a batch of another format than magic 2",
    BAD_HEADER: "no batch has such a header",
    BAD_CRC: "a batch's CRC does not match its bytes",
    BAD_OFFSET: "a batch's offsets do not follow those before it",
    BAD_RECORD: "a malformed record, or another number of them than the batch states",
}

# A verdict on a batch, in bits; 0 for one whose records are judged one by one.
DISCARD = 1  # all its records go
CONTROL = 2  # all its records stay
RETAIN = 4  # something of it must stay, if only its header
MARKER = 8  # it ends a transaction of which nothing is left: stamp it with a delete horizon

# The fate of a record.
DROPPED, KEPT, KEPT_TOMBSTONE = range(3)

_MAGIC = 2
_CODEC_MAX = 4
_CODEC_MASK = 7
_RELATIVE_MAX = 0xFFFFFFFF

# Keys are hashed by polynomials over the integers modulo this prime; see cleaner/offset_map.py.
_PRIME = 2**61 - 1
_WORD_BYTES = 7
_WORD_MASK = 2**56 - 1
_STORED_BITS = 48  # of each of the two polynomials' 61
_STORED_MASK = 2**48 - 1
_HOME_MASK = 0xFFFFFFFF

# Keys hashed before the first of them is looked up, so that the cache misses of all overlap.
_BLOCK = 256


@kernel(int64_tuple(3), BYTES, INT64, INT64, INT64, TABLE)
def scan_batches(
    data: Bytes, start: int, end: int, offset_min: int, batches: Table
) -> tuple[int, int, int]:
    """Fill the table with the whole batches between two positions, checking each one's CRC.

    Returns the status, the rows filled, and the position of the first batch not taken: for
    want of rows or because it is not whole (WHOLE), or because of what the status says.
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
        offset_min = base_offset + last_delta + 1
        position += size
        row += 1
    return WHOLE, row, position


@kernel(UINT64, UINT64, UINT64)
def multiply_modulo(a: int, b: int) -> int:
    """Multiply modulo the prime, but for a last subtraction: less than 2^61 + 2."""
    low = a * b
    high = multiply_high(a, b)
    total = (low & uint64(_PRIME)) + ((low >> uint64(61)) | (high << uint64(3)))
    return (total & uint64(_PRIME)) + (total >> uint64(61))


@kernel(UINT64, BYTES, INT64, INT64)
def read_word(data: Bytes, position: int, size: int) -> int:
    """Read up to seven bytes, the least significant first."""
    if position + 8 <= data.size:
        mask = (uint64(1) << uint64(8 * size)) - uint64(1)
        return load_uint64(data, position) & mask
    word = uint64(0)
    for at in range(size):
        word |= uint64(data[position + at]) << uint64(8 * at)
    return word


@kernel(UINT64_TRIPLE, BYTES, INT64, INT64, UINT64, UINT64)
def hash_key(
    data: Bytes, position: int, length: int, point_a: int, point_b: int
) -> tuple[int, int, int]:
    """Hash a key; return word 0, word 1 without an offset, and the 32 bits that place it."""
    a = b = uint64(length + 1)
    end = position + length
    while position + _WORD_BYTES <= end:
        word = read_word(data, position, _WORD_BYTES)
        a = multiply_modulo(a, point_a) + word
        b = multiply_modulo(b, point_b) + word
        position += _WORD_BYTES
    if position < end:
        word = read_word(data, position, end - position)
        a = multiply_modulo(a, point_a) + word
        b = multiply_modulo(b, point_b) + word
    a = multiply_modulo(a, point_a)
    b = multiply_modulo(b, point_b)
    if a >= uint64(_PRIME):
        a -= uint64(_PRIME)
    if b >= uint64(_PRIME):
        b -= uint64(_PRIME)
    stored_a, stored_b = a & uint64(_STORED_MASK), b & uint64(_STORED_MASK)
    rest = (a >> uint64(_STORED_BITS)) << uint64(13) | b >> uint64(_STORED_BITS)
    word_0 = stored_a << uint64(16) | stored_b >> uint64(32)
    word_1 = stored_b << uint64(32)
    # What is not stored places the key, moved by a mixture of what is: keys that agree in the
    # stored bits keep their distance, all others spread evenly.
    mixture = (word_0 ^ (word_1 + (word_0 >> uint64(29)))) * uint64(0x9E3779B97F4A7C15)
    mixture = (mixture ^ (mixture >> uint64(32))) * uint64(0xD6E8FEB86659FD93)
    home = ((rest << uint64(6)) + (mixture >> uint64(32))) & uint64(_HOME_MASK)
    return word_0, word_1, home


@kernel(int64_tuple(2), UINT64S, INT64, INT64, UINT64S, INT64)
def insert_block(
    table: Words, size: int, size_max: int, block: Words, count: int
) -> tuple[int, int]:
    """Put hashed keys into the map; return how many it then holds and how many were put."""
    slots = uint64(table.size >> 1)
    for at in range(count):
        word_0, word_1 = block[4 * at], block[4 * at + 1]
        slot = block[4 * at + 2]
        while True:
            found = table[2 * slot + uint64(1)]
            if found == 0:
                if size >= size_max:
                    return size, at
                size += 1
                table[2 * slot] = word_0
                table[2 * slot + uint64(1)] = word_1
                break
            if table[2 * slot] == word_0 and (found ^ word_1) >> uint64(32) == 0:
                table[2 * slot + uint64(1)] = word_1
                break
            slot += uint64(1)
            if slot == slots:
                slot = uint64(0)
    return size, count


@kernel(
    int64_tuple(3), BYTES, TABLE, INT64, UINT8S, UINT64S, INT64, INT64, INT64, UINT64, UINT64
)
def index_records(
    data: Bytes,
    batches: Table,
    batch_count: int,
    verdicts: Bytes,
    table: Words,
    size: int,
    size_max: int,
    start_offset: int,
    point_a: int,
    point_b: int,
) -> tuple[int, int, int]:
    """Note the offset of each key in the map, of records at or after an offset.

    Batches with a verdict are passed over. Returns the status (WHOLE, FULL, BAD_RECORD), the
    row of the batch where it stopped, and the keys in the map.
    """
    slots = uint64(table.size >> 1)
    block = np.empty(4 * _BLOCK, np.uint64)
    pending = 0
    for row in range(batch_count):
        if verdicts[row] != 0:
            continue
        position = batches[row, POSITION] + HEADER_SIZE
        end = batches[row, POSITION] + batches[row, SIZE]
        base_offset = batches[row, BASE_OFFSET]
        for _ in range(batches[row, COUNT]):
            status, after, _, delta, key_position, key_length, _, _, _ = read_record(
                data, position, end
            )
            if status != VALID:
                return BAD_RECORD, row, size
            position = after
            offset = base_offset + delta
            if key_length < 0 or offset < start_offset:
                continue
            relative = offset - start_offset + 1
            if relative > _RELATIVE_MAX:
                size, put = insert_block(table, size, size_max, block, pending)
                return FULL, int64(block[4 * put + 3]) if put < pending else row, size
            word_0, word_1, home = hash_key(data, key_position, key_length, point_a, point_b)
            slot = (home * slots) >> uint64(32)
            prefetch(table, 2 * slot)
            block[4 * pending] = word_0
            block[4 * pending + 1] = word_1 | uint64(relative)
            block[4 * pending + 2] = slot
            block[4 * pending + 3] = row
            pending += 1
            if pending == _BLOCK:
                size, put = insert_block(table, size, size_max, block, pending)
                if put < pending:
                    return FULL, int64(block[4 * put + 3]), size
                pending = 0
        if position != end:
            return BAD_RECORD, row, size
    size, put = insert_block(table, size, size_max, block, pending)
    if put < pending:
        return FULL, int64(block[4 * put + 3]), size
    return WHOLE, batch_count, size


@kernel(INT64, UINT64S, UINT64, UINT64, UINT64)
def find_relative(table: Words, word_0: int, word_1: int, slot: int) -> int:
    """Return what the map holds for a hashed key: its offset, relative and 1 up; 0 for none."""
    slots = uint64(table.size >> 1)
    while True:
        found = table[2 * slot + uint64(1)]
        if found == 0:
            return 0
        if table[2 * slot] == word_0 and (found ^ word_1) >> uint64(32) == 0:
            return int64(found & uint64(_RELATIVE_MAX))
        slot += uint64(1)
        if slot == slots:
            slot = uint64(0)


@kernel(types.void, UINT64S, UINT64S, INT64, INT64, UINT8S)
def judge_block(
    table: Words, block: Words, count: int, start_offset: int, fates: Bytes
) -> None:
    """Drop those of a block's records whose key has a later offset in the map."""
    for at in range(count):
        relative = find_relative(table, block[5 * at], block[5 * at + 1], block[5 * at + 2])
        if relative > 0 and int64(block[5 * at + 4]) < start_offset + relative - 1:
            fates[block[5 * at + 3]] = DROPPED


@kernel(
    int64_tuple(5),
    BYTES, TABLE, INT64, UINT8S, UINT64S, INT64, INT64, INT64, UINT64, UINT64, INT64S, UINT8S,
)  # fmt: skip
def judge_records(
    data: Bytes,
    batches: Table,
    batch_count: int,
    verdicts: Bytes,
    table: Words,
    start_offset: int,
    latest_offset: int,
    now_ms: int,
    point_a: int,
    point_b: int,
    positions: npt.NDArray[np.int64],
    fates: Bytes,
) -> tuple[int, int, int, int, int]:
    """Decide the fate of every record in batches that are not discarded (keep.keep_record).

    Fills in each record's position and fate, in order. Returns the status, the row where it
    stopped, the records judged, and of those dropped: without a key, expired tombstones.
    """
    slots = uint64(table.size >> 1)
    block = np.empty(5 * _BLOCK, np.uint64)
    pending = judged = keyless = expired = 0
    for row in range(batch_count):
        if verdicts[row] & DISCARD:
            continue
        position = batches[row, POSITION] + HEADER_SIZE
        end = batches[row, POSITION] + batches[row, SIZE]
        base_offset = batches[row, BASE_OFFSET]
        stamped = batches[row, ATTRIBUTES] & DELETE_HORIZON_BIT != 0
        tombstones_go = stamped and batches[row, BASE_TIMESTAMP] <= now_ms
        if judged + batches[row, COUNT] > fates.size:
            return BAD_RECORD, row, judged, keyless, expired
        for _ in range(batches[row, COUNT]):
            status, after, _, delta, key_position, key_length, _, value_length, _ = read_record(
                data, position, end
            )
            if status != VALID:
                return BAD_RECORD, row, judged, keyless, expired
            positions[judged] = position
            position = after
            offset = base_offset + delta
            fate = KEPT if value_length >= 0 else KEPT_TOMBSTONE
            if not verdicts[row] & CONTROL and offset <= latest_offset:
                if key_length < 0:
                    fate = DROPPED
                    keyless += 1
                elif fate == KEPT_TOMBSTONE and tombstones_go:
                    fate = DROPPED
                    expired += 1
                else:
                    word_0, word_1, home = hash_key(
                        data, key_position, key_length, point_a, point_b
                    )
                    slot = (home * slots) >> uint64(32)
                    prefetch(table, 2 * slot)
                    block[5 * pending] = word_0
                    block[5 * pending + 1] = word_1
                    block[5 * pending + 2] = slot
                    block[5 * pending + 3] = judged
                    block[5 * pending + 4] = offset
                    pending += 1
            fates[judged] = fate
            judged += 1
            if pending == _BLOCK:
                judge_block(table, block, pending, start_offset, fates)
                pending = 0
        if position != end:
            return BAD_RECORD, row, judged, keyless, expired
    judge_block(table, block, pending, start_offset, fates)
    return WHOLE, batch_count, judged, keyless, expired
