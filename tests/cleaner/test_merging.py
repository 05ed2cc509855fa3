"""Which stored segments become one: over facts that a test makes up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cleaner.rules.merging import (
    MERGED_MIN,
    MergeLimits,
    StoredSegment,
    choose_merge,
)
from odradek.cleaner.rules.policy import OFFSET_SPAN_MAX
from odradek.config.topic import TopicConfig

MAX = 64 << 20
FREE = MergeLimits(1 << 62, 1 << 40, 1 << 62)


def segment(at: int, size: int = 10, ms: int = 1) -> StoredSegment:
    return StoredSegment(at, at + 1, size, 8, 12, ms, ms)


def sized(*sizes: int) -> list[StoredSegment]:
    return [segment(at, size) for at, size in enumerate(sizes)]


def merged(some: Sequence[StoredSegment]) -> StoredSegment:
    """Return the facts of the segment that some become."""
    return StoredSegment(
        some[0].base_offset,
        some[-1].next_offset,
        sum(one.size_bytes for one in some),
        sum(one.index_bytes + 8 for one in some),
        sum(one.time_index_bytes for one in some),
        some[0].first_timestamp,
        max(one.max_timestamp for one in some),
    )


def test_a_few_segments_at_the_end_stay() -> None:
    assert choose_merge([], FREE) is None
    assert choose_merge(sized(*[10] * (MERGED_MIN - 1)), FREE) is None
    assert choose_merge(sized(*[10] * MERGED_MIN), FREE) == range(MERGED_MIN)


def test_a_segment_far_larger_than_those_after_it_stays() -> None:
    assert choose_merge(sized(81, *[10] * 8), FREE) == range(1, 9)
    assert choose_merge(sized(80, *[10] * 8), FREE) == range(9)
    assert choose_merge(sized(81, *[10] * 7), FREE) is None


@pytest.mark.parametrize(
    ("limits", "last"),
    [
        (replace(FREE, size_bytes=99), segment(2, 70)),
        (replace(FREE, index_bytes=47), segment(2)),
        (replace(FREE, index_bytes=35), replace(segment(2), index_bytes=0)),
        (replace(FREE, span_ms=5), segment(2, ms=7)),
        (replace(FREE, span_ms=5), replace(segment(2), first_timestamp=-1)),
        (replace(FREE, span_ms=5), replace(segment(2), max_timestamp=-1)),
        (FREE, replace(segment(2), next_offset=OFFSET_SPAN_MAX + 2)),
    ],
)
def test_segments_before_one_that_does_not_fit_become_one(
    limits: MergeLimits, last: StoredSegment
) -> None:
    before = sized(*[10, 10])
    assert choose_merge([*before, last], limits) == range(2)
    assert choose_merge([merged(before), last], limits) is None


def test_a_large_segment_stays() -> None:
    limits = replace(FREE, size_bytes=100)
    assert choose_merge(sized(25, 1, 1, 25, 25), limits) == range(1, 3)
    assert choose_merge(sized(25, 2, 25, 25), limits) is None


def test_the_limits_are_those_of_the_topic() -> None:
    forever = replace(TopicConfig(), retention_ms=-1, segment_ms=7000)
    assert MergeLimits.of(forever, MAX) == MergeLimits(MAX, 10 << 20, 7000)
    assert MergeLimits.of(replace(forever, segment_bytes=1 << 20), MAX).size_bytes == 1 << 20
    assert MergeLimits.of(replace(forever, retention_bytes=8000), MAX).size_bytes == 1000
    assert MergeLimits.of(replace(forever, retention_ms=8000), MAX).span_ms == 1000
    assert MergeLimits.of(replace(forever, retention_ms=80000), MAX).span_ms == 7000


# --- a log that grows ------------------------------------------------------------------------


@dataclass(frozen=True)
class Piece:
    """A segment, and how often each of those that became it was copied."""

    facts: StoredSegment
    copies: tuple[int, ...]


@dataclass(frozen=True)
class Appended:
    size: int
    pause_ms: int
    spread_ms: int
    dropped: int  # segments that retention deletes before


SIZES = st.one_of(st.integers(1, 30), st.integers(1, 3000))
STEPS = st.lists(
    st.builds(
        Appended,
        SIZES,
        st.sampled_from([0, 1, 1, 1, 40]),
        st.integers(0, 3),
        st.sampled_from([0] * 30 + [1, 2]),
    ),
    min_size=1,
    max_size=300,
)
LIMITS = st.builds(
    MergeLimits,
    st.sampled_from([0, 100, 1000, 5000]),
    st.sampled_from([100, 1000, 1 << 20]),
    st.sampled_from([10, 100, 1 << 40]),
)


def grow(steps: Sequence[Appended], limits: MergeLimits) -> list[list[Piece]]:
    """Append segments, and merge after each; return the log after each step."""
    log: list[Piece] = []
    offset, now_ms, states = 0, 1000, []
    for step in steps:
        del log[: step.dropped]
        now_ms += step.pause_ms
        facts = StoredSegment(
            offset, offset + 2, step.size, 8, 12, now_ms, now_ms + step.spread_ms
        )
        log.append(Piece(facts, (0,)))
        offset += 2
        while (chosen := choose_merge([one.facts for one in log], limits)) is not None:
            some = log[chosen.start : chosen.stop]
            assert len(some) > 1
            made = merged([one.facts for one in some])
            assert made.size_bytes <= limits.size_bytes
            assert max(made.index_bytes, made.time_index_bytes) <= limits.index_bytes
            first_ms = min(one.facts.first_timestamp for one in some)
            assert made.max_timestamp - first_ms <= limits.span_ms
            copies = tuple(count + 1 for one in some for count in one.copies)
            log[chosen.start : chosen.stop] = [Piece(made, copies)]
        states.append(list(log))
    return states


def doublings(steps: Sequence[Appended], limits: MergeLimits) -> float:
    """Return how often the smallest size can double."""
    smallest = min(one.size for one in steps)
    largest = min(limits.size_bytes, sum(one.size for one in steps))
    return math.log2(max(largest / smallest, 1))


@given(STEPS, LIMITS)
def test_a_byte_is_copied_a_few_times(steps: list[Appended], limits: MergeLimits) -> None:
    copies_max = 3 + doublings(steps, limits)
    for log in grow(steps, limits):
        assert max(max(one.copies) for one in log) <= copies_max


@given(STEPS, LIMITS)
def test_few_segments_stay(steps: list[Appended], limits: MergeLimits) -> None:
    """Of neighbours before the open window no two fit into one."""
    few = MERGED_MIN + doublings(steps, limits)
    for log in grow(steps, limits):
        facts = [one.facts for one in log]
        if choose_merge([*facts, replace(facts[-1], max_timestamp=-1)], limits) is not None:
            # The open window, whose begin is unknown here: it would become one if it ended.
            chosen = choose_merge([*facts, replace(facts[-1], max_timestamp=-1)], limits)
            assert chosen is not None
            assert chosen.stop == len(facts)
            assert len(chosen) <= few
            facts = facts[: chosen.start]
        for one, other in pairwise(facts):
            assert not fit(one, other, limits), (one, other)


def fit(one: StoredSegment, other: StoredSegment, limits: MergeLimits) -> bool:
    """Return whether two small neighbours may become one."""
    made = merged([one, other])
    first_ms = min(one.first_timestamp, other.first_timestamp)
    return (
        max(one.size_bytes, other.size_bytes) * 4 < limits.size_bytes
        and made.size_bytes <= limits.size_bytes
        and max(made.index_bytes, made.time_index_bytes) <= limits.index_bytes
        and made.max_timestamp - first_ms <= limits.span_ms
    )


def test_a_trickle_becomes_few_segments_whose_bytes_were_copied_four_times() -> None:
    """A day of small segments, each of 300 KiB and a minute: 422 MiB."""
    limits = MergeLimits.of(TopicConfig(), MAX)
    steps = [Appended(300 << 10, 60_000, 59_000, 0)] * 1440
    log = grow(steps, limits)[-1]
    assert len(log) <= 30
    copies = [count for one in log for count in one.copies]
    assert sum(copies) / len(copies) < 4
