"""The kernels that lay records out in columns, held against the plain decoder."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import columns
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batch_scan import (
    BAD_RECORD,
    BATCH_COLUMNS,
    POSITION,
    SIZE,
    WHOLE,
    scan_batches,
)
from odradek.protocol.batches import HEADER_SIZE, Record, encode_batch
from odradek.protocol.kernel import Table, as_bytes
from tests.protocol.batch_strategies import INT64, record_lists

EVERYTHING = (-(2**63), 2**63 - 1, -(2**63), 2**63 - 1)


def noted(
    data: bytes, bounds: tuple[int, int, int, int] = EVERYTHING, room: int = 1000, first: int = 0
) -> tuple[int, int, Table]:
    table = np.empty((100, BATCH_COLUMNS), np.int64)
    _, count, _ = scan_batches(as_bytes(data), 0, len(data), -(2**62), False, table)
    batches = table[:count]
    rows = np.empty((columns.ROW_FIELDS, room), np.int64)
    status, batch, filled = columns.read_rows(
        as_bytes(data),
        batches,
        first,
        batches[:, POSITION] + HEADER_SIZE,
        batches[:, POSITION] + batches[:, SIZE],
        np.array(bounds, np.int64),
        rows,
    )
    return status, batch, rows[:, :filled]


def later(records: Sequence[Record], offset: int) -> list[Record]:
    return [replace(record, offset=record.offset + offset) for record in records]


def octets(data: bytes, position: int, length: int) -> bytes | None:
    return None if length < 0 else data[position : position + length]


def as_record(data: bytes, row: list[int]) -> Record:
    """Read a row of the table back, its headers with the kernel for those."""
    headers = np.empty((columns.HEADER_FIELDS, row[columns.ROW_HEADERS_COUNT]), np.int64)
    filled = columns.read_headers(
        as_bytes(data),
        np.array([row[columns.ROW_HEADERS_POSITION]]),
        np.array([row[columns.ROW_HEADERS_COUNT]]),
        headers,
    )
    assert filled == row[columns.ROW_HEADERS_COUNT]
    return Record(
        row[columns.ROW_OFFSET],
        row[columns.ROW_TIMESTAMP],
        octets(data, row[columns.ROW_KEY_POSITION], row[columns.ROW_KEY_LENGTH]),
        octets(data, row[columns.ROW_VALUE_POSITION], row[columns.ROW_VALUE_LENGTH]),
        tuple(
            ((octets(data, key, key_length) or b"").decode(), octets(data, value, value_length))
            for key, key_length, value, value_length in headers.T.tolist()
        ),
    )


@given(st.lists(record_lists(timestamps=INT64), min_size=1, max_size=4), st.booleans())
def test_records_are_noted_as_the_plain_decoder_reads_them(
    lists: list[list[Record]], append_time: bool
) -> None:
    batches = [
        encode_batch(
            later(records, 10_000 * at), base_offset=10_000 * at, log_append_time=append_time
        )
        for at, records in enumerate(lists)
    ]
    data = b"".join(batches)
    status, after, rows = noted(data)
    assert (status, after) == (WHOLE, len(batches))
    decoded = list(enumerate(map(decode_records, batches)))
    expected = [(number, record) for number, records in decoded for record in records]
    found = [(row[columns.ROW_BATCH], as_record(data, row)) for row in rows.T.tolist()]
    assert found == expected
    sizes = [
        int(rows[columns.ROW_SIZE, rows[columns.ROW_BATCH] == at].sum())
        for at in range(len(batches))
    ]
    assert sizes == [len(batch) - HEADER_SIZE for batch in batches]


@given(record_lists(timestamps=st.integers(0, 20)), st.tuples(*[st.integers(0, 20)] * 4))
def test_only_what_lies_within_the_bounds_is_noted(
    records: list[Record], bounds: tuple[int, int, int, int]
) -> None:
    data = encode_batch(records)
    _, _, rows = noted(data, bounds)
    first, last, earliest, latest = bounds
    assert rows[columns.ROW_OFFSET].tolist() == [
        record.offset
        for record in records
        if first <= record.offset <= last and earliest <= record.timestamp <= latest
    ]


@given(record_lists(), st.integers(0, 4), st.integers(-1, 1))
def test_a_batch_with_another_number_of_records_is_refused_whole(
    records: list[Record], room_short: int, wrong_by: int
) -> None:
    good = encode_batch(records)
    batch = bytearray(encode_batch(later(records, 10_000), base_offset=10_000))
    count = len(records) + wrong_by
    batch[57:61] = count.to_bytes(4, "big")
    room = 2 * len(records) + max(0, wrong_by) - min(room_short, len(records))
    status, stopped, rows = noted(good + bytes(batch), room=room)
    is_well = wrong_by == 0 and room_short == 0
    assert (status, stopped) == ((WHOLE, 2) if is_well else (BAD_RECORD, 1))
    assert rows.shape[1] == len(records) * (2 if is_well else 1)


@given(st.binary(max_size=300), st.integers(0, 200))
def test_random_bytes_crash_no_kernel(noise: bytes, at: int) -> None:
    data = bytearray(encode_batch([Record(0, 5, b"k", b"v" * 100, (("h", b"x"),))]) + noise)
    data[at : at + len(noise)] = noise
    assert noted(bytes(data))[0] in (WHOLE, BAD_RECORD)
    headers = np.empty((columns.HEADER_FIELDS, 5), np.int64)
    filled = columns.read_headers(
        as_bytes(data), np.array([at, len(data), -1_000_000]), np.array([9, 9, 1]), headers
    )
    assert 0 <= filled <= 5


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=9), st.binary(max_size=5))
def test_parts_are_gathered_back_to_back(parts: list[bytes | None], between: bytes) -> None:
    data = b"".join((part or b"") + between for part in parts) + b"."
    positions, position = [], 0
    for part in parts:
        positions.append(position)
        position += len(part or b"") + len(between)
    lengths = np.array([-1 if part is None else len(part) for part in parts], np.int64)
    together = b"".join(part or b"" for part in parts)
    offsets, out = np.empty(len(parts) + 1, np.int32), np.empty(len(together), np.uint8)
    assert columns.gather(as_bytes(data), np.array(positions, np.int64), lengths, offsets, out)
    assert out.tobytes() == together
    assert [together[a:b] for a, b in itertools.pairwise(offsets)] == [
        part or b"" for part in parts
    ]


@pytest.mark.parametrize(
    ("position", "length", "room"), [(-1, 2, 9), (8, 3, 9), (11, 1, 9), (0, 9, 8)]
)
def test_ranges_that_lie_outside_or_find_no_room_are_not_copied(
    position: int, length: int, room: int
) -> None:
    out = np.zeros(room, np.uint8)
    offsets = np.empty(2, np.int32)
    args = np.array([position]), np.array([length]), offsets, out
    assert not columns.gather(as_bytes(b"0123456789"), *args)
    assert not out.any()
