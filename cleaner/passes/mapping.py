"""Numba kernels of the map from keys to ordinals: they fill it, and find keys in it.

The map is an array of two words a slot, probed linearly:

    word 0    hash bits 0-63
    word 1    hash bits 64-95 in the upper half | ordinal + 1 in the lower; 0: free

An ordinal numbers the records that were read for the map, so it is also the place of a bit in the
bitmap of obsolete records: when a key comes again, the bit of its previous record is set, and
when all records are read the bits mark those that go. Keys for which the full map has no room may
be spilled, as rows of five words of 32 bits (cleaner/passes/spill.py):

    hash bits 0-31 | 32-63 | 64-95 | ordinal | where the key's search begins

Kafka's method, to keep the latest offset of each key and look all records up again, took as long
for the second pass as for the first; with bits the second pass takes a third. A map sized by the
number of distinct keys (a fifth of the memory) was no faster, because look-ups are prefetched.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numba import types

from odradek.cleaner.passes.hashing import UINT64, hash_for_filter, hash_key
from odradek.protocol.batch_scan import BAD_RECORD, BASE_OFFSET, COUNT, FULL, POSITION, SIZE, WHOLE
from odradek.protocol.batches import HEADER_SIZE
from odradek.protocol.intrinsics import Words, prefetch
from odradek.protocol.kernel import (
    BYTES,
    INT64,
    INT64S,
    TABLE,
    UINT8S,
    Bytes,
    Table,
    int64,
    int64_tuple,
    kernel,
    uint64,
)
from odradek.protocol.records import read_varint, read_varlong

SpillRows: TypeAlias = npt.NDArray[np.uint32]

UINT64S = types.uint64[::1]
SPILL_ROWS = types.uint32[:, ::1]
SPILLED = types.Array(types.uint32, 2, "C", readonly=True)
SPILL_COLUMNS = 5
ORDINAL_MAX = 0xFFFFFFFE

_ORDINAL_MASK = 0xFFFFFFFF
# Keys hashed before the first of them is looked up, so that their cache misses overlap.
BLOCK = 256
# The number of rows by which a slot is prefetched ahead.
_AHEAD = 16
BLOCK_COLUMNS = 5  # hash word 0, word 1 with the ordinal, slot, home, tag


@kernel(types.void, UINT8S, INT64)
def set_bit(bits: Bytes, ordinal: int) -> None:
    """Mark a record as obsolete."""
    bits[ordinal >> 3] |= 1 << (ordinal & 7)


@kernel(types.void, SPILL_ROWS, INT64, UINT64, UINT64, INT64, UINT64)
def spill_row(
    rows: SpillRows, at: int, word_0: int, word_1: int, ordinal: int, home: int
) -> None:
    """Write a hashed key into a row, for later."""
    rows[at, 0] = word_0 & uint64(_ORDINAL_MASK)
    rows[at, 1] = word_0 >> uint64(32)
    rows[at, 2] = word_1 >> uint64(32)
    rows[at, 3] = ordinal
    rows[at, 4] = home


@kernel(
    int64_tuple(3), UINT64S, INT64, INT64, UINT64S, INT64, UINT8S, SPILL_ROWS, INT64
)  # fmt: skip
def insert_block(
    table: Words,
    size: int,
    size_max: int,
    block: Words,
    count: int,
    obsolete: Bytes,
    spill: SpillRows,
    spilled: int,
) -> tuple[int, int, int]:
    """Put hashed keys into the map, and mark the records that they make obsolete.

    Returns the number of keys in the map, of keys of the block that are done, and of rows of
    the spill in use.
    """
    slots = uint64(table.size >> 1)
    for at in range(count):
        place = BLOCK_COLUMNS * at
        word_0, word_1, slot = block[place], block[place + 1], block[place + 2]
        while True:
            found = table[2 * slot + uint64(1)]
            if found == 0:
                if size < size_max:
                    size += 1
                    table[2 * slot] = word_0
                    table[2 * slot + uint64(1)] = word_1
                elif spilled < spill.shape[0]:
                    ordinal = int64(word_1 & uint64(_ORDINAL_MASK)) - 1
                    spill_row(spill, spilled, word_0, word_1, ordinal, block[place + 3])
                    spilled += 1
                else:
                    return size, at, spilled
                break
            if table[2 * slot] == word_0 and (found ^ word_1) >> uint64(32) == 0:
                set_bit(obsolete, int64(found & uint64(_ORDINAL_MASK)) - 1)
                table[2 * slot + uint64(1)] = word_1
                break
            slot += uint64(1)
            if slot == slots:
                slot = uint64(0)
    return size, count, spilled


@kernel(int64_tuple(4), BYTES, INT64, INT64)
def read_key(data: Bytes, position: int, end: int) -> tuple[int, int, int, int]:
    """Find a record's end, offset delta, key position and length; the end is -1 when malformed.

    The bytes after the key are not checked here, but by the code that keeps the record.
    """
    size, position = read_varint(data, position, end)
    if position < 0 or size <= 0 or size > end - position:
        return -1, 0, 0, 0
    end = position + size
    _, position = read_varlong(data, position + 1, end)
    if position < 0:
        return -1, 0, 0, 0
    delta, position = read_varint(data, position, end)
    if position < 0:
        return -1, 0, 0, 0
    key_length, position = read_varint(data, position, end)
    if position < 0 or key_length > end - position:
        return -1, 0, 0, 0
    return end, delta, position, key_length


@kernel(types.void, UINT64S, INT64, UINT64, UINT64, UINT64, UINT64, INT64)
def stage_key(
    block: Words, pending: int, word_0: int, word_1: int, slot: int, home: int, tag: int
) -> None:
    """Put a hashed key into a block."""
    place = BLOCK_COLUMNS * pending
    block[place] = word_0
    block[place + 1] = word_1
    block[place + 2] = slot
    block[place + 3] = home
    block[place + 4] = tag


@kernel(INT64, UINT64S, INT64)
def tag_of(block: Words, at: int) -> int:
    """Return the tag of a key in a block."""
    return int64(block[BLOCK_COLUMNS * at + 4])


@kernel(
    int64_tuple(6),
    BYTES, TABLE, INT64, UINT8S, INT64S, INT64, UINT64S, INT64, INT64, UINT64S,
    UINT8S, SPILL_ROWS, UINT64S,
)  # fmt: skip
def index_records(
    data: Bytes,
    batches: Table,
    batch_count: int,
    verdicts: Bytes,
    ordinals: Table,
    start_offset: int,
    table: Words,
    size: int,
    size_max: int,
    points: Words,
    obsolete: Bytes,
    spill: SpillRows,
    filter_hashes: Words,
) -> tuple[int, int, int, int, int, int]:
    """Put each key into the map, and mark the previous record of the key as obsolete.

    Batches with a verdict are skipped, and so are records before the start offset; `ordinals`
    has the first ordinal of each other batch. A record without a key is also marked: a compacted
    topic has no place for it. When `filter_hashes` has room, keys are also hashed for filters, at
    the third point. Returns the status (WHOLE, FULL, BAD_RECORD), the row where it stopped, the
    keys in the map, the rows spilled, the keyless records, the filter hashes.
    """
    slots, point_a, point_b = uint64(table.size >> 1), points[0], points[1]
    block = np.empty(BLOCK_COLUMNS * BLOCK, np.uint64)
    pending = spilled = keyless = hashed = 0
    for row in range(batch_count):
        if verdicts[row] != 0:
            continue
        position = batches[row, POSITION] + HEADER_SIZE
        end = batches[row, POSITION] + batches[row, SIZE]
        ordinal = ordinals[row]
        if ordinal < 0 or ordinal + batches[row, COUNT] > 8 * obsolete.size:
            return BAD_RECORD, row, size, spilled, keyless, hashed
        for _ in range(batches[row, COUNT]):
            position, delta, key_position, key_length = read_key(data, position, end)
            if position < 0:
                return BAD_RECORD, row, size, spilled, keyless, hashed
            if batches[row, BASE_OFFSET] + delta < start_offset:
                ordinal += 1
                continue
            if key_length < 0:
                set_bit(obsolete, ordinal)
                keyless += 1
                ordinal += 1
                continue
            if hashed < filter_hashes.size:
                hashed_key = hash_for_filter(data, key_position, key_length, points[2])
                filter_hashes[hashed] = hashed_key
                hashed += 1
            word_0, word_1, home = hash_key(data, key_position, key_length, point_a, point_b)
            slot = (home * slots) >> uint64(32)
            prefetch(table, 2 * slot)
            stage_key(block, pending, word_0, word_1 | uint64(ordinal + 1), slot, home, row)
            ordinal, pending = ordinal + 1, pending + 1
            if pending == BLOCK:
                size, put, spilled = insert_block(
                    table, size, size_max, block, pending, obsolete, spill, spilled
                )
                if put < pending:
                    return FULL, tag_of(block, put), size, spilled, keyless, hashed
                pending = 0
        if position != end:
            return BAD_RECORD, row, size, spilled, keyless, hashed
    size, put, spilled = insert_block(
        table, size, size_max, block, pending, obsolete, spill, spilled
    )
    if put < pending:
        return FULL, tag_of(block, put), size, spilled, keyless, hashed
    return WHOLE, batch_count, size, spilled, keyless, hashed


@kernel(INT64, UINT64S, UINT64, UINT64, UINT64)
def find_ordinal(table: Words, word_0: int, word_1: int, slot: int) -> int:
    """Return the ordinal of a hashed key's latest record, -1 when the map lacks the key."""
    slots = uint64(table.size >> 1)
    while True:
        found = table[2 * slot + uint64(1)]
        if found == 0:
            return -1
        if table[2 * slot] == word_0 and (found ^ word_1) >> uint64(32) == 0:
            return int64(found & uint64(_ORDINAL_MASK)) - 1
        slot += uint64(1)
        if slot == slots:
            slot = uint64(0)


@kernel(int64_tuple(2), UINT64, UINT64, INT64, INT64)
def place_row(home: int, slots: int, parts: int, steps: int) -> tuple[int, int]:
    """Return the step of its part in which a row is taken, and its slot in the step's map."""
    # The bits of the number that the part has not used give the step, the rest gives the slot.
    rest = (home * uint64(parts)) & uint64(0xFFFFFFFF)
    step = (rest * uint64(steps)) >> uint64(32)
    rest = (rest * uint64(steps)) & uint64(0xFFFFFFFF)
    return int64(step), int64((rest * slots) >> uint64(32))


@kernel(INT64, SPILLED, INT64, INT64, INT64, INT64, UINT64S, INT64, INT64, UINT8S)
def insert_rows(
    rows: SpillRows,
    count: int,
    parts: int,
    steps: int,
    step: int,
    table: Words,
    size: int,
    size_max: int,
    obsolete: Bytes,
) -> int:
    """Put a step's rows into the map, and mark obsolete ones; return its keys, -1 if full."""
    slots = uint64(table.size >> 1)
    for at in range(count):
        if at + _AHEAD < count:
            _, coming = place_row(uint64(rows[at + _AHEAD, 4]), slots, parts, steps)
            prefetch(table, 2 * uint64(coming))
        of_step, place = place_row(uint64(rows[at, 4]), slots, parts, steps)
        if of_step != step:
            continue
        slot = uint64(place)
        word_0 = uint64(rows[at, 0]) | uint64(rows[at, 1]) << uint64(32)
        word_1 = uint64(rows[at, 2]) << uint64(32) | (uint64(rows[at, 3]) + uint64(1))
        while True:
            found = table[2 * slot + uint64(1)]
            if found == 0:
                if size >= size_max:
                    return -1
                size += 1
                table[2 * slot] = word_0
                table[2 * slot + uint64(1)] = word_1
                break
            if table[2 * slot] == word_0 and (found ^ word_1) >> uint64(32) == 0:
                set_bit(obsolete, int64(found & uint64(0xFFFFFFFF)) - 1)
                table[2 * slot + uint64(1)] = word_1
                break
            slot += uint64(1)
            if slot == slots:
                slot = uint64(0)
    return size
