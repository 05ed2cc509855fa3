"""The offset map: its hash against plain arithmetic, its answers against a dictionary."""

from __future__ import annotations

import random
import secrets

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cleaner.passes import hashing, mapping
from odradek.cleaner.passes.hashing import PRIME, HashKey, hash_key_plain
from odradek.cleaner.passes.indexing import Ordinals
from odradek.cleaner.passes.offset_map import SLOT_BYTES, OffsetMap
from odradek.protocol import batch_scan
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.kernel import Table, as_bytes

POINTS = st.builds(HashKey, *[st.integers(0, PRIME - 1) | st.sampled_from([0, 1, PRIME - 1])] * 2)
ANY_KEY = HashKey(1234567890123456789, 987654321098765432)


def scan(data: bytes) -> Table:
    table = np.empty((1000, batch_scan.BATCH_COLUMNS), np.int64)
    status, count, _ = batch_scan.scan_batches(as_bytes(data), 0, len(data), 0, True, table)
    assert status == batch_scan.WHOLE
    return table[:count]


def batch_of(keys: list[bytes | None], base_offset: int = 0) -> bytes:
    records = [Record(base_offset + at, 0, key, b"v") for at, key in enumerate(keys)]
    return encode_batch(records, base_offset=base_offset)


def add(target: OffsetMap, data: bytes, start: int = 0) -> tuple[int, int]:
    table = scan(data)
    ordinals = Ordinals(0, start).number(table, dirty=True)
    target.obsolete.make_room(int(ordinals[-1]) + 10**5)
    added = target.add(as_bytes(data), table, np.zeros(len(table), np.uint8), ordinals)
    return added.status, added.row


def new_map(records: int, *, bytes_max: int = 1 << 20) -> OffsetMap:
    return OffsetMap(records, bytes_max=bytes_max, load_factor_max=0.9, hash_key=ANY_KEY)


@given(st.binary(max_size=60), POINTS, st.binary(max_size=9), st.binary(max_size=9))
def test_the_kernel_hashes_as_plain_arithmetic_does(
    key: bytes, points: HashKey, before: bytes, after: bytes
) -> None:
    data = as_bytes(before + key + after + b"\0")
    hashed = hashing.hash_key(data, len(before), len(key), points.point_a, points.point_b)
    assert tuple(int(word) for word in hashed) == hash_key_plain(key, points)


@given(st.sets(st.binary(max_size=4), min_size=2, max_size=50))
def test_keys_that_differ_in_little_hash_apart(keys: set[bytes]) -> None:
    padded = {key + b"\0" * zeros for key in keys for zeros in range(3)}
    hashes = {hash_key_plain(key, ANY_KEY)[:2] for key in padded}
    assert len(hashes) == len(padded)


def test_every_run_draws_its_own_points() -> None:
    assert HashKey.draw(secrets.randbelow) != HashKey.draw(secrets.randbelow)


@given(
    st.lists(
        st.one_of(st.none(), st.integers(0, 400).map(lambda n: b"key-%d" % n)),
        min_size=1,
        max_size=600,
    ),
)
def test_it_answers_and_marks_as_a_dictionary_does(keys: list[bytes | None]) -> None:
    built = new_map(len(keys))
    assert add(built, batch_of(keys)) == (batch_scan.WHOLE, 1)
    latest = {key: at for at, key in enumerate(keys) if key is not None}
    assert len(built) == len(latest)
    for number in range(401):
        key = b"key-%d" % number
        assert built.get(key) == latest.get(key)
    for at, given_key in enumerate(keys):
        assert (at in built.obsolete) == (given_key is None or latest[given_key] != at)


def test_a_map_full_to_the_last_key_finds_each_one() -> None:
    count = 20_000
    keys: list[bytes | None] = [random.Random(at).randbytes(at % 30) for at in range(count)]
    built = new_map(count, bytes_max=count * SLOT_BYTES * 10 // 9)
    assert add(built, batch_of(keys))[0] == batch_scan.WHOLE
    assert built.utilization == pytest.approx(len(built) / (count * 10 // 9), abs=0.001)
    latest = {key: at for at, key in enumerate(keys)}
    assert all(built.get(key) == at for key, at in latest.items() if key is not None)


def test_a_key_takes_twenty_bytes_at_most() -> None:
    for records in (1000, 123_456, 1_000_000):
        built = new_map(records, bytes_max=1 << 30)
        assert built.memory_bytes <= 20 * records + 2 * SLOT_BYTES


def test_the_ceiling_is_kept_and_the_map_says_where_it_was_full() -> None:
    built = new_map(10_000, bytes_max=100 * SLOT_BYTES)
    assert built.memory_bytes == 100 * SLOT_BYTES
    first = batch_of([b"%d" % at for at in range(90)])
    again = batch_of([b"%d" % at for at in range(90)], base_offset=90)
    one_more = batch_of([b"another"], base_offset=180)
    # What is known already always has room: 90 of 100 slots may be used.
    assert add(built, first + again) == (batch_scan.WHOLE, 2)
    assert len(built) == 90
    assert add(built, one_more, 180) == (batch_scan.FULL, 0)
    assert built.get(b"0") == 90
    assert built.get(b"another") is None


def test_a_record_without_a_bit_is_refused() -> None:
    built = new_map(10)
    data = batch_of([b"a"] * 5)
    ordinals = np.array([8 * len(built.obsolete.bits) - 4])
    added = built.add(as_bytes(data), scan(data), np.zeros(1, np.uint8), ordinals)
    assert added.status == batch_scan.BAD_RECORD
    assert mapping.ORDINAL_MAX < 2**32 - 1  # one more has to fit into the slot's 32 bits


def test_a_hash_spreads_consecutive_numbers_evenly() -> None:
    # A poor spread makes searches long: with 0.8 of the slots used, 13 slots are usual.
    count = 50_000
    built = new_map(count)
    assert add(built, batch_of([b"%08d" % at for at in range(count)]))[0] == batch_scan.WHOLE
    homes = np.array(
        [hash_key_plain(b"%08d" % at, ANY_KEY)[2] for at in range(count)], dtype=np.float64
    )
    in_buckets, _ = np.histogram(homes, bins=256, range=(0, 2**32))
    chi_squared = float(((in_buckets - count / 256) ** 2 / (count / 256)).sum())
    assert chi_squared < 400  # 255 degrees of freedom: more has a chance of 10^-8
