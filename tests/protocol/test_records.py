"""Records: the kernels and their plain twins give the same answers, on any bytes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol import records
from odradek.protocol.records_plain import (
    MALFORMED,
    NOT_FOUND,
    InvalidRecord,
    RecordStatus,
    encode_record,
    encode_varint,
    first_at_or_after_plain,
    read_record,
    read_varint,
    read_varlong,
    validate_records_plain,
    wrap_int64,
)
from tests.profiles import examples
from tests.protocol.batch_strategies import (
    INT32,
    INT64,
    hostile_records,
    mutated_sections,
    random_sections,
    sections,
)

Section = tuple[bytes, int]
SECTIONS = st.one_of(
    sections(),
    sections(gaps=False),
    mutated_sections(),
    hostile_records(),
    st.tuples(st.binary(max_size=60), st.integers(-1, 4)),
)
properties = settings(deadline=None, max_examples=examples(60))
# Statuses of sections that are well formed, but not what a producer may send.
WELL_FORMED = {RecordStatus.VALID, RecordStatus.NULL_KEY, RecordStatus.OFFSET_GAP}


@properties
@given(st.binary(max_size=14), st.integers(0, 15), st.integers(0, 14))
def test_kernels_read_varints_as_plain_python_does(octets: bytes, start: int, end: int) -> None:
    end = min(end, len(octets))
    array = records.as_bytes(octets)
    assert records.read_varint(array, start, end) == read_varint(octets, start, end)
    assert records.read_varlong(array, start, end) == read_varlong(octets, start, end)


@properties
@given(INT32, INT64)
def test_reading_a_varint_inverts_encoding_it(small: int, large: int) -> None:
    octets = encode_varint(small) + encode_varint(large)
    value, position = read_varint(octets, 0, len(octets))
    assert value == small
    assert read_varlong(octets, position, len(octets)) == (large, len(octets))


@pytest.mark.parametrize(
    ("octets", "value"),
    [
        (b"\x00", 0),
        (b"\x01", -1),
        (b"\x02", 1),
        (b"\x80\x01", 64),
        (b"\xfe\xff\xff\xff\x0f", 2**31 - 1),
        (b"\xff\xff\xff\xff\x0f", -(2**31)),
        # Kafka's ByteUtils drops the bits that an int32 has no room for.
        (b"\xfe\xff\xff\xff\x7f", 2**31 - 1),
    ],
)
def test_varints_are_those_of_kafka(octets: bytes, value: int) -> None:
    assert read_varint(octets, 0, len(octets)) == (value, len(octets))


@pytest.mark.parametrize("octets", [b"", b"\x80", b"\xff" * 5 + b"\x00"])
def test_a_varint_without_end_is_malformed(octets: bytes) -> None:
    assert read_varint(octets, 0, len(octets))[1] == -1


@properties
@given(st.binary(min_size=8, max_size=12), st.integers(0, 4))
def test_kernels_read_big_endian_integers(octets: bytes, position: int) -> None:
    position = min(position, len(octets) - 8)
    array = records.as_bytes(octets)
    assert records.read_int16(array, position) == struct.unpack_from(">h", octets, position)[0]
    assert records.read_int32(array, position) == struct.unpack_from(">i", octets, position)[0]
    assert records.read_int64(array, position) == struct.unpack_from(">q", octets, position)[0]


@properties
@given(SECTIONS, st.booleans(), st.binary(max_size=5), st.binary(max_size=5))
def test_the_validating_kernel_equals_its_plain_twin(
    section: Section, require_keys: bool, before: bytes, after: bytes
) -> None:
    octets, count = section
    start, end = len(before), len(before) + len(octets)
    plain = validate_records_plain(octets, 0, len(octets), count, require_keys)
    # What lies around the section makes no difference, so nothing is read there.
    around = before + octets + after
    assert validate_records_plain(around, start, end, count, require_keys) == plain
    assert records.validate_records(around, start, end, count, require_keys) == plain
    assert records.validate_records(bytearray(around), start, end, count, require_keys) == plain


@properties
@given(SECTIONS)
def test_a_scan_finds_the_parts_of_all_records_or_refuses(section: Section) -> None:
    check_scan(*section)


def check_scan(octets: bytes, count: int) -> None:
    """Compare a scan with the plain reading of each record."""
    status = validate_records_plain(octets, 0, len(octets), count, False).status
    if status not in WELL_FORMED:
        with pytest.raises(InvalidRecord) as refusal:
            records.scan(octets, 0, len(octets), count)
        assert refusal.value.status == status
        return
    expected = []
    position = 0
    for _ in range(count):
        start = position
        position, delta, offset_delta, key_position, key_length, _, value_length, _ = read_record(
            octets, position, len(octets)
        )
        expected.append(
            [start, position, offset_delta, delta, key_position, key_length, value_length]
        )
    assert records.scan(octets, 0, len(octets), count).tolist() == expected


def test_kernels_and_plain_twins_agree_on_thousands_of_sections() -> None:
    statuses = set()
    for octets, count in random_sections(seed=1, rounds=4000):
        plain = validate_records_plain(octets, 0, len(octets), count, True)
        assert records.validate_records(octets, 0, len(octets), count, True) == plain
        arguments = (octets, 0, len(octets), count, 5, 6, 1)
        assert records.first_at_or_after(*arguments) == first_at_or_after_plain(*arguments)
        check_scan(octets, count)
        statuses.add(plain.status)
    assert statuses == set(RecordStatus)


@properties
@given(SECTIONS, INT64, INT64, st.integers(-5, 1000))
def test_the_search_by_time_equals_its_plain_twin(
    section: Section, base_timestamp: int, timestamp: int, offset_delta_min: int
) -> None:
    octets, count = section
    arguments = (octets, 0, len(octets), count, base_timestamp, timestamp, offset_delta_min)
    assert records.first_at_or_after(*arguments) == first_at_or_after_plain(*arguments)


@properties
@given(sections(), INT64, st.data())
def test_the_search_by_time_finds_the_first_that_is_late_enough(
    section: Section, base_timestamp: int, data: st.DataObject
) -> None:
    octets, count = section
    rows = records.scan(octets, 0, len(octets), count)
    found = [
        (int(row[records.SCAN_OFFSET_DELTA]), wrap_int64(base_timestamp + int(delta)))
        for row, delta in zip(rows, rows[:, records.SCAN_TIMESTAMP_DELTA], strict=True)
    ]
    timestamp = data.draw(st.sampled_from(found))[1]
    offset_delta_min = data.draw(st.sampled_from(found))[0]
    expected = [pair for pair in found if pair[1] >= timestamp and pair[0] >= offset_delta_min]
    answer = records.first_at_or_after(
        octets, 0, len(octets), count, base_timestamp, timestamp, offset_delta_min
    )
    assert answer == (expected[0] if expected else (NOT_FOUND, 0))


def test_the_search_by_time_stops_at_a_malformed_record() -> None:
    octets = encode_record(0, 0, b"k", b"v") + b"\x02\x00"
    assert records.first_at_or_after(octets, 0, len(octets), 2, 0, 0) == (0, 0)
    assert records.first_at_or_after(octets, 0, len(octets), 2, 0, 1) == (MALFORMED, 0)


def record(offset_delta: int, delta: int = 0, key: bytes | None = b"key", **other: Any) -> bytes:
    """One well-formed record."""
    return encode_record(offset_delta, delta, key, other.get("value"), other.get("headers", ()))


@pytest.mark.parametrize(
    ("octets", "count", "status", "index"),
    [
        (b"", 0, RecordStatus.VALID, -1),
        (record(0) + record(1, headers=(("h", None),)), 2, RecordStatus.VALID, -1),
        (record(0) + b"\x00", 1, RecordStatus.TRAILING_BYTES, 1),
        (record(0), 2, RecordStatus.MISSING_RECORDS, 1),
        (b"", -1, RecordStatus.BAD_RANGE, 0),
        (record(0) + b"\xff" * 9, 2, RecordStatus.BAD_SIZE, 1),
        (b"\x00", 1, RecordStatus.BAD_SIZE, 0),
        (record(0)[:-1], 1, RecordStatus.BAD_SIZE, 0),
        (b"\x04\x00\x80", 1, RecordStatus.BAD_TIMESTAMP, 0),
        (b"\x06\x00\x00\x80", 1, RecordStatus.BAD_OFFSET, 0),
        (b"\x08\x00\x00\x00\x02", 1, RecordStatus.BAD_KEY, 0),
        (b"\x0a\x00\x00\x00\x01\x02", 1, RecordStatus.BAD_VALUE, 0),
        (b"\x0c\x00\x00\x00\x01\x01\x02", 1, RecordStatus.BAD_HEADERS, 0),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1, RecordStatus.BAD_HEADERS, 0),
        (b"\x0c\x00\x00\x00\x01\x01\x01", 1, RecordStatus.BAD_HEADERS, 0),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1, RecordStatus.LEFTOVER, 0),
        (record(0) + record(1, key=None), 2, RecordStatus.NULL_KEY, 1),
        (record(0) + record(2), 2, RecordStatus.OFFSET_GAP, 1),
        (record(0) + record(2) + record(2, key=None), 3, RecordStatus.NULL_KEY, 2),
        (record(0, key=None) + b"\x02", 2, RecordStatus.BAD_SIZE, 1),
    ],
)
def test_each_status_names_the_first_record_at_fault(
    octets: bytes, count: int, status: RecordStatus, index: int
) -> None:
    for validate in (validate_records_plain, records.validate_records):
        validation = validate(octets, 0, len(octets), count, True)
        assert (validation.status, validation.index) == (status, index)


def test_null_keys_are_only_at_fault_where_keys_are_required() -> None:
    octets = record(0, key=None)
    assert records.validate_records(octets, 0, len(octets), 1, False).status == RecordStatus.VALID


def test_the_range_of_timestamp_deltas_is_reported() -> None:
    octets = b"".join(record(n, delta) for n, delta in enumerate([-5, 7, -9, 7]))
    validation = records.validate_records(octets, 0, len(octets), 4, True)
    assert validation.timestamp_delta_min == -9
    assert validation.timestamp_delta_max == 7


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (0, 8), (5, 4), (8, 8), (-(2**62), 2**62)])
def test_ranges_outside_the_buffer_are_refused(start: int, end: int) -> None:
    octets = bytes(7)
    for validate in (validate_records_plain, records.validate_records):
        assert validate(octets, start, end, 1, True).status == RecordStatus.BAD_RANGE
    table = np.empty((1, records.SCAN_COLUMNS), np.int64)
    assert records.scan_kernel(records.as_bytes(octets), start, end, 1, table)[0] != 0
    for search in (first_at_or_after_plain, records.first_at_or_after):
        assert search(octets, start, end, 1, 0, 0) == (MALFORMED, 0)


@pytest.mark.parametrize("shape", [(0, 7), (1, 6), (1, 8)])
def test_a_scan_never_writes_past_its_table(shape: tuple[int, int]) -> None:
    octets = record(0)
    array = records.as_bytes(octets)
    status, rows = records.scan_kernel(array, 0, len(octets), 1, np.empty(shape, np.int64))
    assert (status, rows) == (RecordStatus.BAD_RANGE, 0)


def test_warming_up_leaves_every_kernel_compiled_for_one_signature() -> None:
    records.warm_up()
    kernels = [value for value in vars(records).values() if hasattr(value, "py_func")]
    assert kernels
    assert all(len(kernel.signatures) == 1 for kernel in kernels)


def test_a_kernel_is_named_after_all_that_it_refers_to() -> None:
    # With the old name it would be loaded from a cache that still has the old constant in it.
    def define(source: str, **names: object) -> Any:
        namespace: dict[str, Any] = {"int64": np.int64, **names}
        exec(compile(source, "<no file, so no cache>", "exec"), namespace)
        return records.kernel(records.INT64, records.INT64)(namespace["function"])

    source = "def function(n):\n    return n + LIMIT\n"
    ten, twenty = define(source, LIMIT=10), define(source, LIMIT=20)
    assert (ten(1), twenty(1)) == (11, 21)
    assert ten.py_func.__qualname__ != twenty.py_func.__qualname__
    assert ten.py_func.__qualname__ == define(source, LIMIT=10).py_func.__qualname__
    caller = "def function(n):\n    return 2 * inner(n)\n"
    by_ten, by_twenty = define(caller, inner=ten), define(caller, inner=twenty)
    assert (by_ten(1), by_twenty(1)) == (22, 42)
    assert by_ten.py_func.__qualname__ != by_twenty.py_func.__qualname__
