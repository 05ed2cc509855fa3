"""Numba kernels that judge records: by their bits, or by their keys in the map."""

from __future__ import annotations

import numpy as np
from numba import types

from odradek.cleaner.passes.hashing import hash_key
from odradek.cleaner.passes.mapping import (
    BLOCK,
    BLOCK_COLUMNS,
    SPILL_ROWS,
    UINT64S,
    SpillRows,
    find_ordinal,
    read_key,
    set_bit,
    spill_row,
    stage_key,
)
from odradek.cleaner.rules.verdicts import (
    DISCARD,
    DROPPED,
    EXPIRED,
    KEEP,
    KEPT,
    KEPT_TOMBSTONE,
    NO_ORDINAL,
)
from odradek.protocol.batch_scan import (
    ATTRIBUTES,
    BAD_RECORD,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    POSITION,
    SIZE,
    WHOLE,
)
from odradek.protocol.batches import DELETE_HORIZON_BIT, HEADER_SIZE
from odradek.protocol.intrinsics import Words, prefetch
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
    uint64,
)
from odradek.protocol.records import VALID, read_record, read_varint


@kernel(types.void, UINT64S, UINT64S, INT64, UINT8S)
def judge_block(table: Words, block: Words, count: int, fates: Bytes) -> None:
    """Drop the records of a block whose key is in the map."""
    for at in range(count):
        place = BLOCK_COLUMNS * at
        if find_ordinal(table, block[place], block[place + 1], block[place + 2]) >= 0:
            fates[block[place + 4]] = DROPPED


@kernel(INT64, BYTES, INT64, INT64)
def skip_record(data: Bytes, position: int, end: int) -> int:
    """Return the end of a record by its size alone, -1 when the size is malformed."""
    size, position = read_varint(data, position, end)
    if position < 0 or size <= 0 or size > end - position:
        return -1
    return position + size


@kernel(
    int64_tuple(4),
    BYTES, INT64, INT64, INT64, INT64, BOOLEAN, BOOLEAN, UINT8S, UINT64S, UINT64S, UINT64S,
    INT64, INT64, INT64S, UINT8S,
)  # fmt: skip
def judge_batch(
    data: Bytes,
    position: int,
    end: int,
    count: int,
    ordinal: int,
    keeps: bool,
    tombstones_go: bool,
    obsolete: Bytes,
    table: Words,
    points: Words,
    block: Words,
    pending: int,
    judged: int,
    positions: Table,
    fates: Bytes,
) -> tuple[int, int, int, int]:
    """Judge the records of one batch, as judge_records() does.

    Returns the end of the records, -1 when they are malformed; the number of pending keys; and
    among the dropped records, the number without a key and the number of expired tombstones.
    """
    keyless = expired = 0
    slots, point_a, point_b = uint64(table.size >> 1), points[0], points[1]
    has_bits = ordinal != NO_ORDINAL and not keeps
    for at in range(judged, judged + count):
        positions[at] = position
        if has_bits:
            bit = obsolete[ordinal >> 3] >> (ordinal & 7) & 1
            ordinal += 1
            if bit:
                position = skip_record(data, position, end)
                if position < 0:
                    return -1, pending, keyless, expired
                fates[at] = DROPPED
                continue
        status, position, _, _, key_position, key_length, _, value_length, _ = read_record(
            data, position, end
        )
        if status != VALID:
            return -1, pending, keyless, expired
        fates[at] = KEPT if value_length >= 0 else KEPT_TOMBSTONE
        if keeps:
            continue
        if key_length < 0:
            fates[at] = DROPPED
            keyless += 1
        elif value_length < 0 and tombstones_go:
            fates[at] = DROPPED
            expired += 1
        elif not has_bits and table.size > 0:
            word_0, word_1, home = hash_key(data, key_position, key_length, point_a, point_b)
            slot = (home * slots) >> uint64(32)
            prefetch(table, 2 * slot)
            stage_key(block, pending, word_0, word_1, slot, home, at)
            pending += 1
            if pending == BLOCK:
                judge_block(table, block, pending, fates)
                pending = 0
    return (position if position == end else -1), pending, keyless, expired


@kernel(
    int64_tuple(5),
    BYTES, TABLE, INT64, UINT8S, INT64S, UINT8S, UINT64S, UINT64S, INT64, INT64S, UINT8S,
)  # fmt: skip
def judge_records(
    data: Bytes,
    batches: Table,
    batch_count: int,
    verdicts: Bytes,
    ordinals: Table,
    obsolete: Bytes,
    table: Words,
    points: Words,
    now_ms: int,
    positions: Table,
    fates: Bytes,
) -> tuple[int, int, int, int, int]:
    """Decide the fate of every record in batches that are not discarded (keep.keep_record).

    Records with an ordinal are judged by the bits, the others by the map: a key in the map is
    that of a later record. Fills in each record's position and fate, in order. Returns the
    status, the row where it stopped, the records judged, the records without a key among those
    looked up, and the expired tombstones that were dropped.
    """
    block = np.empty(BLOCK_COLUMNS * BLOCK, np.uint64)
    pending = judged = keyless = expired = 0
    for row in range(batch_count):
        verdict = verdicts[row]
        if verdict & DISCARD:
            continue
        count, ordinal = batches[row, COUNT], ordinals[row]
        has_bits = ordinal != NO_ORDINAL
        if judged + count > fates.size or (has_bits and ordinal + count > 8 * obsolete.size):
            return BAD_RECORD, row, judged, keyless, expired
        stamped = batches[row, ATTRIBUTES] & DELETE_HORIZON_BIT != 0
        after, pending, without_key, gone = judge_batch(
            data,
            batches[row, POSITION] + HEADER_SIZE,
            batches[row, POSITION] + batches[row, SIZE],
            count,
            ordinal,
            verdict & KEEP != 0,
            verdict & EXPIRED != 0 or (stamped and batches[row, BASE_TIMESTAMP] <= now_ms),
            obsolete,
            table,
            points,
            block,
            pending,
            judged,
            positions,
            fates,
        )
        if after < 0:
            return BAD_RECORD, row, judged, keyless, expired
        judged += count
        keyless += without_key
        expired += gone
    judge_block(table, block, pending, fates)
    return WHOLE, batch_count, judged, keyless, expired


@kernel(
    int64_tuple(4),
    BYTES, TABLE, INT64, UINT8S, INT64S, INT64, UINT64S, UINT64S, UINT8S, SPILL_ROWS,
)  # fmt: skip
def look_up_records(
    data: Bytes,
    batches: Table,
    batch_count: int,
    verdicts: Bytes,
    ordinals: Table,
    end_offset: int,
    table: Words,
    points: Words,
    obsolete: Bytes,
    spill: SpillRows,
) -> tuple[int, int, int, int]:
    """Mark records whose key is in the map as obsolete, and spill those whose key is not.

    Like index_records(), but for records before an end offset, which are older than all in the
    map and do not go into it. Returns the status, the row, the rows spilled, and the keyless
    records.
    """
    slots = uint64(table.size >> 1)
    spilled = keyless = 0
    for row in range(batch_count):
        if verdicts[row] != 0:
            continue
        position = batches[row, POSITION] + HEADER_SIZE
        end = batches[row, POSITION] + batches[row, SIZE]
        ordinal = ordinals[row]
        if ordinal < 0 or ordinal + batches[row, COUNT] > 8 * obsolete.size:
            return BAD_RECORD, row, spilled, keyless
        for _ in range(batches[row, COUNT]):
            position, delta, key_position, key_length = read_key(data, position, end)
            if position < 0 or spilled == spill.shape[0]:
                return BAD_RECORD, row, spilled, keyless
            if batches[row, BASE_OFFSET] + delta >= end_offset:
                ordinal += 1
                continue
            if key_length < 0:
                set_bit(obsolete, ordinal)
                keyless += 1
            else:
                word_0, word_1, home = hash_key(
                    data, key_position, key_length, points[0], points[1]
                )
                slot = (home * slots) >> uint64(32)
                if find_ordinal(table, word_0, word_1, slot) >= 0:
                    set_bit(obsolete, ordinal)
                else:
                    spill_row(spill, spilled, word_0, word_1, ordinal, home)
                    spilled += 1
            ordinal += 1
        if position != end:
            return BAD_RECORD, row, spilled, keyless
    return WHOLE, batch_count, spilled, keyless
