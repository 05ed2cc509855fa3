"""The model of Kafka's cleaner does what its cleaner does, said in the plainest way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.cleaner_model import (
    NEVER,
    KafkaCleaner,
    Offsets,
    RunFinder,
    Sizes,
    kafka_runs,
)


@dataclass(frozen=True)
class Case:
    """A partition: the key at each offset, where segments begin, how far it is clean."""

    keys: list[int]
    base_offsets: list[int]
    first_dirty: int
    keys_max: int
    pieces: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    keys = draw(st.lists(st.integers(0, 8), min_size=1, max_size=60))
    inner = draw(st.sets(st.integers(1, max(1, len(keys) - 1)), max_size=6))
    bases = sorted({0, *(one for one in inner if one < len(keys))})
    first_dirty = draw(st.sampled_from([0, draw(st.integers(0, len(keys) - 1))]))
    return Case(keys, bases, first_dirty, draw(st.integers(1, 6)), draw(st.integers(1, 9)))


@given(cases())
def test_runs_end_where_the_map_is_full(case: Case) -> None:
    assert _run_ends(case) == _plain_run_ends(case)


@given(cases())
def test_runs_copy_what_is_left_of_the_segments_before_their_end(case: Case) -> None:
    ends = _run_ends(case)
    runs = kafka_runs(_sizes(case, ends), ends, case.first_dirty, min_cleanable_ratio=-1.0)
    assert [(run.read_bytes, run.written_bytes) for run in runs] == _plain_copies(case, ends)
    assert [(run.start_offset, run.end_offset) for run in runs] == list(
        zip([case.first_dirty, *ends[:-1]], ends, strict=True)
    )


@given(cases(), st.floats(0, 1))
def test_a_log_that_is_not_dirty_enough_is_left_alone(case: Case, ratio: float) -> None:
    ends = _run_ends(case)
    sizes = _sizes(case, ends)
    all_runs = kafka_runs(sizes, ends, case.first_dirty, min_cleanable_ratio=-1.0)
    runs = kafka_runs(sizes, ends, case.first_dirty, min_cleanable_ratio=ratio)
    assert runs == all_runs[: len(runs)]
    assert kafka_runs(sizes, ends, case.first_dirty, min_cleanable_ratio=1.0) == []


def test_the_ticket_service_needs_as_many_runs_as_it_saw() -> None:
    # 300 million dirty records a partition, by default: "54 log cleaner runs" without the load
    # factor, which makes it a few more.
    cleaner = KafkaCleaner()
    assert cleaner.map_bytes // 24 == 5_592_405
    assert 300_000_000 / cleaner.keys_max == pytest.approx(60, abs=0.5)
    larger = KafkaCleaner(dedupe_buffer_bytes=1 << 30)
    assert 40_000_000 < larger.keys_max < 45_000_000
    assert KafkaCleaner(threads=2).keys_max == pytest.approx(cleaner.keys_max / 2, abs=1)


def _run_ends(case: Case) -> list[int]:
    offsets = np.arange(len(case.keys), dtype=np.int64)
    previous = _neighbours(case)[0]
    finder = RunFinder(case.first_dirty, case.keys_max)
    dirty = offsets[case.first_dirty :]
    for piece in np.array_split(dirty, case.pieces):
        finder.feed(piece, previous[piece])
    return finder.finish(len(case.keys))


def removal_runs(next_offsets: Offsets, run_ends: Sequence[int]) -> Offsets:
    """Return the number of the run that removes each record, the count of runs if none does.

    A record is removed by the run whose map holds the next record of the same key.
    """
    runs = np.searchsorted(np.asarray(run_ends, np.int64), next_offsets, side="right")
    return np.where(next_offsets == NEVER, len(run_ends), runs).astype(np.int64)


def _sizes(case: Case, ends: list[int]) -> Sizes:
    bases = np.asarray(case.base_offsets, np.int64)
    runs = removal_runs(_neighbours(case)[1], ends)
    segments = np.searchsorted(bases, np.arange(len(case.keys)), side="right") - 1
    table = np.zeros((len(bases), len(ends) + 1))
    np.add.at(table, (segments, runs), 1.0)
    return Sizes(bases, table)


def _neighbours(case: Case) -> tuple[np.ndarray, np.ndarray]:
    previous, following = (np.full(len(case.keys), NEVER, np.int64) for _ in range(2))
    for offset, key in enumerate(case.keys):
        before = [one for one in range(offset) if case.keys[one] == key]
        after = [
            one
            for one in range(max(offset + 1, case.first_dirty), len(case.keys))
            if case.keys[one] == key
        ]
        previous[offset] = before[-1] if before else NEVER
        following[offset] = after[0] if after else NEVER
    return previous, following


def _plain_run_ends(case: Case) -> list[int]:
    """Fill a map until there is no room for one more record."""
    ends, at = [], case.first_dirty
    while True:
        held: set[int] = set()
        while at < len(case.keys) and len(held) < case.keys_max:
            held.add(case.keys[at])
            at += 1
        if at == len(case.keys):
            return [*ends, at]
        ends.append(at)


def _plain_copies(case: Case, ends: list[int]) -> list[tuple[float, float]]:
    """Copy records of one byte each, run by run."""
    log = list(enumerate(case.keys))
    copies = []
    start = case.first_dirty
    for end in ends:
        held = {key: offset for offset, key in enumerate(case.keys) if start <= offset < end}
        copied_end = min((one for one in case.base_offsets if one >= end), default=len(case.keys))
        read = [one for one in log if one[0] < copied_end]
        written = [
            (offset, key)
            for offset, key in read
            if offset >= end or offset >= held.get(key, NEVER)
        ]
        copies.append((float(len(read)), float(len(written))))
        log = written + [one for one in log if one[0] >= copied_end]
        start = end
    return copies
