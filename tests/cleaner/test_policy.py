"""What is cleaned, how far and in which order: over facts that a test makes up."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cleaner.rules.facts import LogFacts, SegmentFacts
from odradek.cleaner.rules.policy import (
    OFFSET_SPAN_MAX,
    Bound,
    CheckpointProblem,
    Reason,
    SegmentSizes,
    dirty_range,
    expiry_due_ms,
    group_segments,
    reason_to_clean,
    urgency,
)
from odradek.config.topic import TopicConfig

NOW = 100_000
NEVER = 2**63 - 1


def log_facts(
    *segments: SegmentFacts,
    config: TopicConfig | None = None,
    start: int = 0,
    end: int = 100,
    stable: int | None = None,
) -> LogFacts:
    return LogFacts(
        "t", 0, config or TopicConfig(), start, end, end if stable is None else stable, end,
        segments,
    )  # fmt: skip


def segment(base: int, size: int = 10, largest: int = 0, first: int = 0) -> SegmentFacts:
    return SegmentFacts(base, size, largest, first)


TENS = tuple(segment(base) for base in (0, 10, 20, 30))


def test_without_a_checkpoint_all_but_the_active_segment_is_dirty() -> None:
    dirty = dirty_range(log_facts(*TENS), None, NOW)
    assert (dirty.first_dirty_offset, dirty.first_uncleanable_offset) == (0, 30)
    assert (dirty.clean_bytes, dirty.cleanable_bytes) == (0, 30)
    assert dirty.cleanable_ratio == 1.0
    assert dirty.bound == Bound.ACTIVE_SEGMENT


def test_the_dirty_section_starts_at_the_checkpoint() -> None:
    dirty = dirty_range(log_facts(*TENS), 20, NOW)
    assert (dirty.first_dirty_offset, dirty.first_uncleanable_offset) == (20, 30)
    assert (dirty.clean_bytes, dirty.cleanable_bytes) == (20, 10)
    assert dirty.cleanable_ratio == pytest.approx(1 / 3)


def test_a_checkpoint_inside_a_segment_counts_the_segment_on_both_sides() -> None:
    # As Kafka does: its bytes are clean, and they will be read again.
    dirty = dirty_range(log_facts(*TENS), 15, NOW)
    assert dirty.first_dirty_offset == 15
    assert (dirty.clean_bytes, dirty.cleanable_bytes) == (20, 20)


@pytest.mark.parametrize(
    ("checkpoint", "problem"),
    [
        (4, CheckpointProblem.BELOW_LOG_START),
        (101, CheckpointProblem.BEYOND_LOG_END),
        (100, None),
        (5, None),
    ],
)
def test_an_impossible_checkpoint_falls_back_to_the_log_start(
    checkpoint: int, problem: CheckpointProblem | None
) -> None:
    dirty = dirty_range(log_facts(*TENS, start=5), checkpoint, NOW)
    assert dirty.checkpoint_problem == problem
    assert dirty.first_dirty_offset == (5 if problem else checkpoint)


def test_a_fully_clean_log_has_nothing_cleanable() -> None:
    log = log_facts(*TENS, config=replace(TopicConfig(), min_cleanable_dirty_ratio=0.0))
    for checkpoint in (30, 35, 100):
        dirty = dirty_range(log, checkpoint, NOW)
        assert dirty.cleanable_bytes == 0
        assert reason_to_clean(log, dirty) is None


@pytest.mark.parametrize(("stable", "end"), [(0, 0), (5, 0), (10, 10), (29, 20), (30, 30)])
def test_nothing_past_the_last_stable_offset_is_cleaned(stable: int, end: int) -> None:
    dirty = dirty_range(log_facts(*TENS, stable=stable), None, NOW)
    assert dirty.first_uncleanable_offset == end
    assert dirty.cleanable_bytes == end
    expected = Bound.ACTIVE_SEGMENT if stable == 30 else Bound.LAST_STABLE_OFFSET
    assert dirty.bound == expected


def test_the_first_segment_with_a_record_too_young_and_all_after_it_stay() -> None:
    config = replace(TopicConfig(), min_compaction_lag_ms=1000)
    old, limit, young = NOW - 5000, NOW - 1000, NOW - 999
    log = log_facts(
        segment(0, largest=old), segment(10, largest=limit), segment(20, largest=young),
        segment(30, largest=old), segment(40), config=config,
    )  # fmt: skip
    dirty = dirty_range(log, None, NOW)
    assert dirty.first_uncleanable_offset == 20
    assert dirty.bound == Bound.MIN_COMPACTION_LAG
    assert dirty_range(log, None, NOW + 1).bound == Bound.ACTIVE_SEGMENT


def test_a_clean_segment_is_never_too_young() -> None:
    config = replace(TopicConfig(), min_compaction_lag_ms=1000)
    log = log_facts(segment(0, largest=NOW), segment(10), segment(20), config=config)
    assert dirty_range(log, 10, NOW).first_uncleanable_offset == 20


def test_the_ratio_must_be_exceeded_not_reached() -> None:
    config = replace(TopicConfig(), min_cleanable_dirty_ratio=0.5)
    log = log_facts(*TENS[:2], segment(20), config=config)
    assert reason_to_clean(log, dirty_range(log, 10, NOW)) is None
    filthier = log_facts(segment(0, 10), segment(10, 11), segment(20), config=config)
    assert reason_to_clean(filthier, dirty_range(filthier, 10, NOW)) is Reason.DIRTY


def test_an_overdue_log_is_cleaned_whatever_its_ratio() -> None:
    config = replace(
        TopicConfig(), min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000
    )
    first = NOW - 1000
    log = log_facts(segment(0, 99), segment(10, 1, first=first), segment(20), config=config)
    on_time = dirty_range(log, 10, NOW)
    assert (on_time.overdue_ms, reason_to_clean(log, on_time)) == (0, None)
    late = dirty_range(log, 10, NOW + 1)
    assert (late.overdue_ms, reason_to_clean(log, late)) == (1, Reason.OVERDUE)


def test_segments_without_timestamps_are_not_overdue() -> None:
    config = replace(TopicConfig(), max_compaction_lag_ms=1)
    log = log_facts(segment(0, first=-1), segment(10, first=0), segment(20), config=config)
    assert dirty_range(log, None, NOW).overdue_ms == 0


def test_overdue_logs_come_first_by_how_overdue_they_are() -> None:
    base = dirty_range(log_facts(*TENS), 20, NOW)
    filthiest = replace(base, clean_bytes=0)
    late = replace(base, overdue_ms=1)
    later = replace(base, overdue_ms=2, cleanable_bytes=1)
    ordered = sorted([base, later, filthiest, late], key=urgency, reverse=True)
    assert ordered == [later, late, filthiest, base]


SIZES = st.lists(
    st.tuples(
        st.sampled_from([1, 3, 10, 2**30]),
        st.sampled_from([0, 1, 5, 20]),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=12,
)


@given(SIZES)
def test_groups_cover_all_segments_and_stay_within_every_limit(
    rows: list[tuple[int, int, int, int]],
) -> None:
    base, segments = 0, []
    for span, log_bytes, index_bytes, time_index_bytes in rows:
        segments.append(SegmentSizes(base, log_bytes, index_bytes, time_index_bytes))
        base += span
    groups = group_segments(segments, log_bytes_max=20, index_bytes_max=4, end_offset=base)
    assert [at for group in groups for at in group] == list(range(len(segments)))
    for group in groups:
        members = [segments[at] for at in group]
        end = segments[group.stop].base_offset if group.stop < len(segments) else base
        assert len(members) == 1 or sum(s.log_bytes for s in members) <= 20
        assert len(members) == 1 or sum(s.index_bytes for s in members) <= 4
        assert len(members) == 1 or sum(s.time_index_bytes for s in members) <= 4
        span = end - 1 - members[0].base_offset
        assert len(members) == 1 or span <= OFFSET_SPAN_MAX or members[-1].log_bytes == 0
    # A group ends only where the next segment does not fit.
    for group, following in itertools.pairwise(groups):
        joined = [segments[at] for at in [*group, following.start]]
        after = following.start + 1
        end = segments[after].base_offset if after < len(segments) else base
        assert (
            sum(s.log_bytes for s in joined) > 20
            or sum(s.index_bytes for s in joined) > 4
            or sum(s.time_index_bytes for s in joined) > 4
            or end - 1 - joined[0].base_offset > OFFSET_SPAN_MAX
        )


def test_an_empty_segment_joins_a_group_across_any_span() -> None:
    far = 2**33
    segments = [SegmentSizes(at * far, size, 0, 0) for at, size in enumerate((5, 0, 5))]
    groups = group_segments(segments, log_bytes_max=20, index_bytes_max=4, end_offset=3 * far)
    assert groups == [range(2), range(2, 3)]


@pytest.mark.parametrize(
    ("first_dirty", "segment_ms", "wait_ms"),
    [
        (100, 5_000, 100),  # nothing was appended since: up to ten runs a delete.retention.ms
        (99, 5_000, 5_000),  # the run for later records can take the tombstones along
        (99, 10, 100),
    ],
)
def test_expired_tombstones_wait_for_the_run_of_later_records(
    first_dirty: int, segment_ms: int, wait_ms: int
) -> None:
    config = replace(
        TopicConfig(),
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=1.0,
        delete_retention_ms=1000,
        segment_ms=segment_ms,
    )
    log = log_facts(*TENS, config=config)
    due_ms = expiry_due_ms(log, first_dirty, NOW)
    assert due_ms == NOW + wait_ms
    reasons = [
        reason_to_clean(log, dirty_range(log, first_dirty, at_ms, horizon_ms=NOW))
        for at_ms in (due_ms - 1, due_ms)
    ]
    assert reasons == [None, Reason.EXPIRED]
