"""The histogram of request times: each time is in its bucket, quantiles are near the truth."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.counters import latency
from odradek.broker.counters.latency import BUCKET_COUNT, Times, bound_us, minus, quantile_us

LAST_BOUND_US = int(bound_us(BUCKET_COUNT - 2))
# Sides of a bucket are so far apart.
ERROR = 2**0.25


def observed(monkeypatch: pytest.MonkeyPatch, *times_us: int) -> Times:
    times = Times()
    for time_us in times_us:
        monkeypatch.setattr(latency, "perf_counter_ns", lambda time_us=time_us: time_us * 1000)
        times.observe(0)
    return times


@given(st.integers(0, 10 * LAST_BOUND_US))
def test_a_time_is_below_its_buckets_bound_and_not_below_the_one_before(time_us: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        times = observed(patch, time_us)
    bucket = times.counts.index(1)
    assert times.total_us == time_us
    if bucket < BUCKET_COUNT - 1:
        assert time_us < bound_us(bucket)
    if bucket:
        assert time_us >= math.floor(bound_us(bucket - 1))


@given(
    st.lists(st.integers(2, LAST_BOUND_US), min_size=1, max_size=50),
    st.sampled_from([0.5, 0.95, 0.99, 1.0]),
)
def test_a_quantile_is_off_by_a_buckets_width_at_most(values: list[int], share: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = quantile_us(observed(patch, *values).counts, share)
    truth = sorted(values)[math.ceil(share * len(values)) - 1]
    assert found is not None
    assert truth / ERROR - 1 <= found <= truth * ERROR + 1


def test_no_requests_have_no_quantile() -> None:
    assert quantile_us(Times().counts, 0.99) is None


def test_recent_counts_go_back_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    times = observed(monkeypatch, 100)
    for _ in range(4):
        times.turn_minute()
    assert sum(times.recent()) == 1
    times.turn_minute()
    assert sum(times.recent()) == 0
    assert sum(minus(times.counts, times.recent())) == 1
