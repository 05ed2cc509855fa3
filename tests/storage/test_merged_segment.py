"""Neighbouring segments as one: the same batches, found by the same offsets and timestamps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.errors import CorruptFile
from odradek.storage.merged_segment import Source, write_merged
from odradek.storage.segment import CLEANED, INDEX, LOG, TIME_INDEX, Segment
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import SMALL, Partition
from tests.storage.transactional import committed_offsets, end, indexed, write

CONFIG = replace(SMALL, internal_segment_bytes=1 << 20, segment_index_bytes=1 << 20)
INTERVAL = CONFIG.index_interval_bytes


def sources(segments: Sequence[Segment]) -> list[Source]:
    return [Source(one, crc32c(one.log.read(0, one.size_bytes))) for one in segments]


def entries(segment: Segment) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the entries of both indexes, with whole offsets."""
    base = segment.base_offset
    offsets, times = segment.offset_index.entries.load(), segment.time_index.entries.load()
    return (
        [(base + one, position) for one, position in zip(*offsets, strict=True)],
        [(ms, base + one) for ms, one in zip(*times, strict=True)],
    )


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[int, int, bool]]:
    """The size of each batch, its timestamp, and whether a segment ends behind it."""
    return draw(
        st.lists(
            st.tuples(st.integers(1, 300), st.integers(-1, 30), st.booleans()),
            min_size=2,
            max_size=40,
        )
    )


@given(batches())
def test_a_merged_segment_has_what_its_sources_had(some: list[tuple[int, int, bool]]) -> None:
    partition = Partition(CrashFileSystem(), config=CONFIG)
    log = partition.log
    for size, timestamp, is_last in some:
        partition.append([(b"k", bytes(size)), (b"l", b"")], timestamp)
        if is_last:
            log.roll(0)
    log.roll(0)
    old = log.segments[:-1]
    before, size_bytes = partition.batches(), log.size_bytes
    times = [log.offset_for_timestamp(ms) for ms in range(32)]
    had = [entries(one) for one in old]
    largest = log.offset_of_max_timestamp()
    new = write_merged(partition.fs, sources(old), INTERVAL)
    log.replace_segments(old, [new], 0)
    assert len(log.segments) == 2
    assert log.size_bytes == size_bytes
    assert partition.batches() == before
    assert [log.offset_for_timestamp(ms) for ms in range(32)] == times
    assert log.offset_of_max_timestamp() == largest
    positions = list(accumulate((one.size_bytes for one in old), initial=0))
    offsets, stamps = entries(new)
    shifted = {
        (offset, start + position)
        for (of_one, _), start in zip(had, positions, strict=False)
        for offset, position in of_one
    }
    assert set(offsets) >= shifted
    # Other entries are those of first batches, none of them within an interval of another entry.
    others = set(offsets) - shifted
    assert {position for _, position in others} <= set(positions)
    assert all(
        after - position > INTERVAL
        for (_, position), (offset, after) in pairwise([(0, 0), *offsets])
        if (offset, after) in others
    )
    every = [one for _, of_one in had for one in of_one]
    assert stamps == [
        one
        for at, one in enumerate(every)
        if one[0] > max((ms for ms, _ in every[:at]), default=-1)
    ]
    # A start finds nothing to repair.
    again = partition.reopen()
    assert again.batches() == before
    again.log.segments[0].check_tail()


def test_batches_of_segments_smaller_than_an_interval_are_indexed() -> None:
    partition = Partition(CrashFileSystem(), config=CONFIG)
    for at in range(50):
        partition.append([(b"k", bytes(30))], at)
        partition.log.roll(0)
    old = partition.log.segments[:-1]
    assert not any(entries(one)[0] for one in old)
    offsets, _ = entries(write_merged(partition.fs, sources(old), INTERVAL))
    sizes = [old[0].size_bytes, *(after - before for (_, before), (_, after) in pairwise(offsets))]
    assert max(sizes) <= INTERVAL + 2 * old[0].size_bytes
    assert len(offsets) > 10


def test_transactions_that_were_aborted_stay_so() -> None:
    partition = Partition(CrashFileSystem(), config=CONFIG)
    log = partition.log
    for at in range(12):
        write(partition, 1, 0, at, b"a")
        write(partition, 2, 0, at, b"b")
        if at % 3 == 2:
            log.roll(0)
        end(partition, 1, 0, commit=at % 2 == 0)
        log.roll(0)
        end(partition, 2, 0, commit=at % 4 == 0)
    log.roll(0)
    found, aborted = list(committed_offsets(log)), indexed(log)
    assert len(aborted) == 15
    old = log.segments[2:-3]
    log.replace_segments(old, [write_merged(partition.fs, sources(old), INTERVAL)], 0)
    assert (list(committed_offsets(log)), indexed(log)) == (found, aborted)


@pytest.mark.parametrize("kind", [LOG, INDEX, TIME_INDEX])
def test_damage_is_not_merged(kind: str) -> None:
    partition = Partition(CrashFileSystem(), config=CONFIG)
    for _ in range(2):
        for at in range(20):
            partition.append([(b"k", bytes(100))], at)
        partition.log.roll(0)
    old = partition.log.segments[:-1]
    intact = sources(old)
    path = old[1].path(kind)
    data = bytearray(partition.fs.read_bytes(path))
    data[len(data) // 2 :] = b"\xff" * len(data[len(data) // 2 :])
    partition.fs.open(path, write=True).append(0, [bytes(data)])
    before = partition.fs.list(partition.log.directory)
    with pytest.raises(CorruptFile, match=path.name):
        write_merged(partition.fs, intact, INTERVAL)
    assert partition.fs.list(partition.log.directory) == before
    assert not [name for name in before if name.endswith(CLEANED)]
