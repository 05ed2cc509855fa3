"""Numba kernels that write the remaining records of batches, and pick their index entries.

cleaner/passes/judging.py decides the fate of each record; these kernels carry it out.
The rules are Kafka's (MemoryRecords.filterTo):

- a batch that loses no record is copied unchanged;
- a batch that loses records keeps its header: base offset, last offset, producer, sequence,
  epochs. Its base timestamp becomes that of the first remaining record, and its maximum
  timestamp the largest of the remaining records;
- a batch that keeps a tombstone for the first time is stamped with a delete horizon: bit 6 of
  the attributes, and the horizon in place of the base timestamp, from which deltas then count;
- a batch that loses all records is removed, or leaves an empty header where that must stay.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numba import types

from odradek.cleaner.rules.verdicts import DISCARD, DROPPED, KEEP, KEPT_TOMBSTONE, MARKER, RETAIN
from odradek.protocol.batch_scan import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    COUNT,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    SIZE,
)
from odradek.protocol.batches import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
)
from odradek.protocol.intrinsics import copy_bytes, crc32c
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
from odradek.protocol.records import read_varint, read_varlong

Mask: TypeAlias = npt.NDArray[np.bool_]

# The columns of a table of surviving batches.
(
    OUT_ROW,  # the batch's row in the source's table
    OUT_POSITION,
    OUT_SIZE,
    OUT_LAST_OFFSET,
    OUT_MAX_TIMESTAMP,
    OUT_COUNT,
    OUT_HOW,
    OUT_HORIZON,  # the time after which its tombstones, or the marker, may go; -1 for never
) = range(8)
OUT_COLUMNS = 8
UNCHANGED, REWRITTEN, EMPTIED = range(3)

# The columns of a table of index entries: the batch's last offset and position, then the
# largest timestamp so far and the offset that has it.
ENTRY_COLUMNS = 4

# The most bytes a rewritten record can gain: its timestamp delta grows to 10 bytes, its size by 1.
GROWTH_MAX = 11

_EMPTY_BITS = ~(DELETE_HORIZON_BIT | CODEC_MASK)


@kernel(types.void, UINT8S, INT64, INT64, INT64)
def write_integer(out: Bytes, position: int, value: int, size: int) -> None:
    """Write a big-endian integer of `size` bytes."""
    for at in range(size):
        out[position + at] = (value >> (8 * (size - 1 - at))) & 0xFF


@kernel(INT64, UINT8S, INT64, INT64)
def write_varlong(out: Bytes, position: int, value: int) -> int:
    """Write a zig-zag varint or varlong; return the position after it."""
    raw = uint64((value << 1) ^ (value >> 63))
    while raw >= uint64(0x80):
        out[position] = (raw & uint64(0x7F)) | uint64(0x80)
        raw >>= uint64(7)
        position += 1
    out[position] = raw
    return position + 1


@kernel(INT64, INT64)
def varlong_size(value: int) -> int:
    """Return the bytes that a zig-zag varint or varlong takes."""
    raw = uint64((value << 1) ^ (value >> 63))
    size = 1
    while raw >= uint64(0x80):
        raw >>= uint64(7)
        size += 1
    return size


@kernel(INT64, UINT8S, INT64, INT64, INT64, INT64, INT64, INT64)
def finish_batch(
    out: Bytes,
    at: int,
    end: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
) -> int:
    """Complete a batch that still has its source's header; return its size."""
    write_integer(out, at + 8, end - at - LOG_OVERHEAD, 4)
    write_integer(out, at + 21, attributes, 2)
    write_integer(out, at + 27, base_timestamp, 8)
    write_integer(out, at + 35, max_timestamp, 8)
    write_integer(out, at + 57, count, 4)
    write_integer(out, at + 17, crc32c(out, at + 21, end), 4)
    return end - at


@kernel(int64_tuple(2), BYTES, TABLE, INT64, INT64S, UINT8S, INT64, INT64, INT64, UINT8S, INT64)
def rewrite_batch(
    data: Bytes,
    batches: Table,
    row: int,
    positions: Table,
    fates: Bytes,
    first: int,
    kept: int,
    horizon_ms: int,
    out: Bytes,
    at: int,
) -> tuple[int, int]:
    """Write a batch without its dropped records; return its size and its maximum timestamp.

    With a horizon of -1 the batch keeps its own, if it has one.
    """
    copy_bytes(out, at, data, batches[row, POSITION], HEADER_SIZE)
    end = at + HEADER_SIZE
    limit = batches[row, POSITION] + batches[row, SIZE]
    attributes, base = batches[row, ATTRIBUTES], batches[row, BASE_TIMESTAMP]
    append_time = attributes & LOG_APPEND_TIME_BIT != 0
    new_base = base
    if horizon_ms >= 0:
        attributes |= DELETE_HORIZON_BIT
        new_base = horizon_ms
    has_base = attributes & DELETE_HORIZON_BIT != 0
    largest = NO_TIMESTAMP
    for index in range(first, first + batches[row, COUNT]):
        if fates[index] == DROPPED:
            continue
        size, start = read_varint(data, positions[index], limit)
        record_end = start + size
        delta, rest = read_varlong(data, start + 1, record_end)
        timestamp = batches[row, MAX_TIMESTAMP] if append_time else base + delta
        largest = max(largest, timestamp)
        if not has_base:
            new_base = timestamp
            has_base = True
        new_delta = timestamp - new_base
        if new_delta == delta:
            copy_bytes(out, end, data, positions[index], record_end - positions[index])
            end += record_end - positions[index]
            continue
        end = write_varlong(out, end, 1 + varlong_size(new_delta) + record_end - rest)
        out[end] = data[start]
        end = write_varlong(out, end + 1, new_delta)
        copy_bytes(out, end, data, rest, record_end - rest)
        end += record_end - rest
    return finish_batch(out, at, end, attributes, new_base, largest, kept), largest


@kernel(
    int64_tuple(2),
    BYTES, TABLE, INT64, UINT8S, INT64S, UINT8S, INT64, BOOLEAN, UINT8S, TABLE,
)  # fmt: skip
def emit_batches(
    data: Bytes,
    batches: Table,
    batch_count: int,
    verdicts: Bytes,
    positions: Table,
    fates: Bytes,
    horizon_ms: int,
    copy_unchanged: bool,
    out: Bytes,
    survivors: Table,
) -> tuple[int, int]:
    """Write the remaining records of each batch; return the bytes written and the survivors.

    `out` must have room for every batch, and for each record to grow by GROWTH_MAX. Without
    `copy_unchanged` unchanged batches only get their row in the survivors' table.
    """
    at = 0
    first = 0
    count = 0
    for row in range(batch_count):
        position, size = batches[row, POSITION], batches[row, SIZE]
        records = 0 if verdicts[row] & DISCARD else batches[row, COUNT]
        kept = tombstones = 0
        for index in range(first, first + records):
            kept += fates[index] != DROPPED
            tombstones += fates[index] == KEPT_TOMBSTONE
        stamped = batches[row, ATTRIBUTES] & DELETE_HORIZON_BIT != 0
        expires = tombstones > 0 or verdicts[row] & MARKER != 0
        must_stamp = not stamped and expires and horizon_ms >= 0
        how = UNCHANGED
        largest = batches[row, MAX_TIMESTAMP]
        if kept > 0 and kept == records and not must_stamp:
            if copy_unchanged:
                copy_bytes(out, at, data, position, size)
            else:
                size = 0
        elif kept > 0:
            how = REWRITTEN
            size, largest = rewrite_batch(
                data, batches, row, positions, fates, first, kept,
                horizon_ms if must_stamp else -1, out, at,
            )  # fmt: skip
        elif verdicts[row] & RETAIN:
            how = EMPTIED
            copy_bytes(out, at, data, position, HEADER_SIZE)
            attributes = batches[row, ATTRIBUTES] & _EMPTY_BITS
            size = finish_batch(out, at, at + HEADER_SIZE, attributes, NO_TIMESTAMP, largest, 0)
        first += records
        if kept == 0 and how != EMPTIED:
            continue
        survivors[count, OUT_ROW] = row
        survivors[count, OUT_POSITION] = at
        survivors[count, OUT_SIZE] = size
        survivors[count, OUT_LAST_OFFSET] = batches[row, LAST_OFFSET]
        survivors[count, OUT_MAX_TIMESTAMP] = largest
        survivors[count, OUT_COUNT] = kept
        survivors[count, OUT_HOW] = how
        horizon = horizon_ms if must_stamp else batches[row, BASE_TIMESTAMP]
        may_expire = tombstones > 0 or verdicts[row] & KEEP != 0
        has_horizon = how != EMPTIED and may_expire and (stamped or must_stamp)
        survivors[count, OUT_HORIZON] = horizon if has_horizon else -1
        at += size
        count += 1
    return at, count


@kernel(int64_tuple(4), TABLE, INT64, INT64, INT64, INT64, INT64, INT64, TABLE)
def pick_index_entries(
    survivors: Table,
    count: int,
    position: int,
    unindexed_bytes: int,
    largest: int,
    offset_of_largest: int,
    interval_bytes: int,
    entries: Table,
) -> tuple[int, int, int, int]:
    """Find the batches that a segment's indexes name, as Segment.append does one by one.

    `position` is the position of the first batch in the new file. Returns the number of entries
    found, the bytes since the last of them, and the largest timestamp so far with its offset.
    """
    found = 0
    for row in range(count):
        if survivors[row, OUT_MAX_TIMESTAMP] > largest:
            largest = survivors[row, OUT_MAX_TIMESTAMP]
            offset_of_largest = survivors[row, OUT_LAST_OFFSET]
        if unindexed_bytes > interval_bytes:
            entries[found, 0] = survivors[row, OUT_LAST_OFFSET]
            entries[found, 1] = position
            entries[found, 2] = largest
            entries[found, 3] = offset_of_largest
            found += 1
            unindexed_bytes = 0
        unindexed_bytes += survivors[row, OUT_SIZE]
        position += survivors[row, OUT_SIZE]
    return found, unindexed_bytes, largest, offset_of_largest


@kernel(types.void, TABLE, INT64, INT64S, UINT8S, types.boolean[::1])
def find_obsolete(
    batches: Table, batch_count: int, ordinals: Table, obsolete: Bytes, found: Mask
) -> None:
    """Set `found` for each batch with ordinals whose records are all marked as obsolete."""
    for row in range(batch_count):
        first, count = ordinals[row], batches[row, COUNT]
        if first < 0 or count == 0 or first + count > 8 * obsolete.size:
            continue
        ordinal = first
        while ordinal < first + count:
            if obsolete[ordinal >> 3] >> (ordinal & 7) & 1 == 0:
                break
            ordinal += 1
        found[row] = ordinal == first + count
