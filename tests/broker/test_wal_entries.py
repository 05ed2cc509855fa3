"""Entries of the WAL: what is committed is what comes back, or damage is reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.ids import Partition
from odradek.broker.wal.entries import (
    FOOTER_BYTES,
    DamagedEntry,
    Entry,
    OpenEntry,
    index_bytes,
    read_ends,
    read_index,
    read_object_index,
    read_wanted,
)

KEYS = [(bytes([topic]) * 16, number) for topic in (1, 2) for number in range(3)]
# The partitions and batches in the order of their appends; each batch has some records.
APPENDS = st.lists(
    st.tuples(st.sampled_from(KEYS), st.binary(min_size=1, max_size=40), st.integers(1, 5)),
    min_size=1,
    max_size=20,
)
Appends = list[tuple[tuple[bytes, int], bytes, int]]


def sealed(appends: Appends) -> Entry:
    entry, ends = OpenEntry(), dict.fromkeys(KEYS, 100)
    for key, batch, count in appends:
        entry.add(key, batch, ends[key], ends[key] + count)
        ends[key] += count
    return entry.seal()


@given(APPENDS)
def test_an_object_gives_back_the_batches_of_each_partition_in_order(appends: Appends) -> None:
    entry = sealed(appends)
    data = b"".join(entry.object())
    size = index_bytes(data[-FOOTER_BYTES:])
    runs = read_object_index(data[-FOOTER_BYTES - size :])
    assert runs == entry.runs == read_index(entry.index())
    assert read_ends(entry.index()) == {one.partition: one.next_offset for one in runs}
    assert [one.partition for one in runs] == sorted({key for key, _, _ in appends})
    for run in runs:
        batches = [batch for key, batch, _ in appends if key == run.partition]
        assert run.take(data) == b"".join(batches)
        records = sum(count for key, _, count in appends if key == run.partition)
        assert (run.base_offset, run.next_offset) == (100, 100 + records)


@given(APPENDS, st.dictionaries(st.sampled_from(KEYS), st.integers(99, 120)))
def test_the_wanted_batches_are_those_with_records_from_an_offset_on(
    appends: Appends, wanted: dict[Partition, int]
) -> None:
    entry = sealed(appends)
    assert read_wanted(entry.index(), wanted) == [
        one for one in entry.runs if one.next_offset > wanted.get(one.partition, 1 << 60)
    ]


@given(APPENDS, st.data())
def test_each_damaged_byte_of_an_object_is_noticed(appends: Appends, data: st.DataObject) -> None:
    found = bytearray(b"".join(sealed(appends).object()))
    place = data.draw(st.integers(0, len(found) - 1))
    found[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedEntry):
        for run in read_object_index(found):
            run.take(found)


@given(APPENDS, st.data())
def test_an_object_that_ends_early_is_noticed(appends: Appends, data: st.DataObject) -> None:
    found = b"".join(sealed(appends).object())
    with pytest.raises(DamagedEntry):
        read_object_index(found[: data.draw(st.integers(0, len(found) - 1))])


@given(APPENDS, st.data())
def test_a_short_or_damaged_index_of_the_catalog_is_noticed(
    appends: Appends, data: st.DataObject
) -> None:
    index = sealed(appends).index()
    size = data.draw(st.integers(0, len(index)).filter(lambda size: size % 44))
    for read in (read_index, read_ends, lambda index: read_wanted(index, {})):
        with pytest.raises(DamagedEntry):
            read(index[:size])
