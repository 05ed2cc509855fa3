"""Finding records in sections: the kernels and their plain twins agree, on any bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.record_kernels import last_with_key, places
from odradek.protocol.record_places import (
    PLAIN_RECORDS_MAX,
    Walker,
    last_with_key_plain,
    places_plain,
)
from odradek.protocol.records_plain import InvalidRecord, RecordStatus, encode_record, read_record
from tests.profiles import examples
from tests.protocol.batch_strategies import (
    hostile_records,
    mutated_sections,
    sections,
)

Section = tuple[bytes, int]
SECTIONS = st.one_of(
    sections(),
    mutated_sections(),
    hostile_records(),
    st.tuples(st.binary(max_size=60), st.integers(0, 4)),
)
properties = settings(deadline=None, max_examples=examples(100))


def outcome(find: Callable[[], object]) -> object:
    try:
        return find()
    except InvalidRecord as error:
        return error.status


@properties
@given(SECTIONS, st.integers(1, 5))
def test_places_are_the_same_by_both(section: Section, step: int) -> None:
    data, count = section[0], max(section[1], 0)
    plain = outcome(lambda: places_plain(data, count, step))
    assert outcome(lambda: places(data, count, step)) == plain


@properties
@given(SECTIONS, st.data())
def test_the_last_record_of_a_key_is_the_same_by_both(
    section: Section, data: st.DataObject
) -> None:
    octets, count = section[0], max(section[1], 0)
    start = data.draw(st.integers(0, len(octets)))
    key = data.draw(st.binary(max_size=3) | st.just(octets[start : start + 4]))
    plain = outcome(lambda: last_with_key_plain(octets, count, key))
    assert outcome(lambda: last_with_key(octets, count, key)) == plain


@properties
@given(sections(), st.integers(1, 4), st.binary(max_size=2))
def test_they_find_what_is_read_one_by_one(section: Section, step: int, key: bytes) -> None:
    octets, count = section
    positions, last, at = [], -1, 0
    for _ in range(count):
        positions.append(at)
        end, _, _, key_at, key_length, *_ = read_record(octets, at, len(octets))
        if key_length >= 0 and octets[key_at : key_at + key_length] == key:
            last = at
        at = end
    assert places_plain(octets, count, step) == positions[::step]
    assert last_with_key_plain(octets, count, key) == last


def test_the_kernels_are_loaded_once_there_is_much_to_walk_over() -> None:
    loads: list[int] = []
    walker = Walker(lambda: loads.append(1))
    few = b"".join(encode_record(at, 0, b"k%d" % at, b"") for at in range(100))
    assert walker.places(few, 100, 40) == places_plain(few, 100, 40)
    assert walker.last_with_key(few, 100, b"k7") > 0
    assert loads == []
    many = encode_record(0, 0, b"k", b"") * PLAIN_RECORDS_MAX
    assert walker.places(many, PLAIN_RECORDS_MAX, 40_000) == [0, 40_000 * 8]
    assert loads == [1]
    assert walker.last_with_key(many, PLAIN_RECORDS_MAX, b"k") == len(many) - 8


def test_a_count_that_lies_takes_no_memory() -> None:
    with pytest.raises(InvalidRecord) as raised:
        places(encode_record(0, 0, b"k", b""), 2**31 - 1, 1)
    assert raised.value.status == RecordStatus.MISSING_RECORDS
