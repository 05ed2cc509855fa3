"""The walk over batches, the CRC, and what damaged bytes meet."""

from __future__ import annotations

import random
import struct

import crc32c as package
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import batch_scan, intrinsics
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.kernel import Table, as_bytes

ROWS = 100


def scan(data: bytes, *, offset_min: int = 0, rows: int = ROWS) -> tuple[int, int, int, Table]:
    table = np.empty((rows, batch_scan.BATCH_COLUMNS), np.int64)
    status, count, position = batch_scan.scan_batches(
        as_bytes(data), 0, len(data), offset_min, True, table
    )
    return status, count, position, table[:count]


def batch(base_offset: int = 0, value: bytes = b"v") -> bytes:
    return encode_batch([Record(base_offset, 5, b"k", value)], base_offset=base_offset)


@given(st.binary(max_size=200), st.integers(0, 9))
def test_the_crc_is_crc32c(data: bytes, start: int) -> None:
    padded = as_bytes(data + bytes(10))
    assert intrinsics.crc32c(padded, start, start + len(data)) == package.crc32c(
        padded[start : start + len(data)].tobytes()
    )


@given(st.integers(0, 20_000), st.integers(0, 2**32 - 1))
def test_the_crc_of_long_inputs_is_crc32c(size: int, seed: int) -> None:
    data = as_bytes(random.Random(seed).randbytes(size))
    assert intrinsics.crc32c(data, 0, size) == package.crc32c(data.tobytes())


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_without_the_instruction_tables_give_the_same_crc(crc: int, word: int) -> None:
    expected = ~package.crc32c(struct.pack("<Q", word), ~crc & 0xFFFFFFFF) & 0xFFFFFFFF
    assert intrinsics.crc32c_word_by_table(crc, word) == expected


def test_batches_are_described_as_their_headers_say() -> None:
    data = encode_batch(
        [Record(7, 50, b"k", None), Record(9, 40, None, b"v")],
        base_offset=7, last_offset_delta=5, producer_id=3, producer_epoch=2, base_sequence=4,
        transactional=True, delete_horizon_ms=1234, leader_epoch=6,
    )  # fmt: skip
    status, count, position, table = scan(batch(0) + data)
    assert (status, count, position) == (batch_scan.WHOLE, 2, len(batch(0)) + len(data))
    assert table[1].tolist() == [
        len(batch(0)), len(data), 7, 12, 0x50, 2, 1234, 50, 3, 2, 4, 6,
    ]  # fmt: skip


@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(0, 400))
def test_a_walk_ends_before_a_batch_that_is_cut_off(sizes: list[int], cut: int) -> None:
    parts = [batch(at, bytes(size)) for at, size in enumerate(sizes)]
    data = b"".join(parts)[: max(0, sum(map(len, parts)) - cut)]
    whole = 0
    while whole < len(parts) and sum(map(len, parts[: whole + 1])) <= len(data):
        whole += 1
    expected = (batch_scan.WHOLE, whole, sum(map(len, parts[:whole])))
    assert not data or scan(data)[:3] == expected


def test_a_walk_ends_when_the_table_is_full() -> None:
    data = b"".join(batch(at) for at in range(5))
    assert scan(data, rows=3)[:3] == (batch_scan.WHOLE, 3, 3 * len(batch()))


@pytest.mark.parametrize(
    ("position", "value", "problem"),
    [
        (8, b"\x00\x00\x00\x10", batch_scan.BAD_LENGTH),
        (8, b"\xff\xff\xff\xff", batch_scan.BAD_LENGTH),
        (16, b"\x01", batch_scan.BAD_MAGIC),
        (17, b"\x00\x00\x00\x00", batch_scan.BAD_CRC),
        (70, b"\xff", batch_scan.BAD_CRC),
        (0, b"\x00\x00\x00\x00\x00\x00\x00\x00", batch_scan.BAD_OFFSET),  # the CRC leaves it out
        (0, b"\xff", batch_scan.BAD_OFFSET),
    ],
)
def test_damage_is_found_and_named(position: int, value: bytes, problem: int) -> None:
    good, damaged = batch(0), bytearray(batch(1, b"a longer value"))
    damaged[position : position + len(value)] = value
    status, count, at, _ = scan(good + bytes(damaged))
    assert (status, count, at) == (problem, 1, len(good))
    assert batch_scan.PROBLEMS[status]


@given(st.binary(max_size=300), st.integers(0, 300))
def test_random_bytes_crash_no_kernel(noise: bytes, at: int) -> None:
    data = batch(0) + noise
    status, count, position, _ = scan(data[: max(at, 1)] + noise)
    assert 0 <= position <= len(data) + len(noise)
    assert count <= ROWS
    assert status in (batch_scan.WHOLE, *batch_scan.PROBLEMS)
