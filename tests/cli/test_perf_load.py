"""What load is like: keys as often as they should come, the same for the same seed."""

from __future__ import annotations

from collections import Counter

import click
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.perf_figures import Latencies
from odradek.cli.perf_load import (
    ZIPF_KEYS_MAX,
    Distribution,
    DistributionType,
    KeyDraw,
    Load,
    Records,
)

UNIFORM = Distribution("uniform")
DRAWN = 100_000


def _draw(load: Load, count: int = DRAWN) -> list[int]:
    drawn: list[int] = KeyDraw(load, np.random.default_rng(7)).draw(count).tolist()
    return drawn


def _records(load: Load, seed: int, *counts: int) -> list[tuple[bytes | None, bytes | None]]:
    records = Records(load, np.random.SeedSequence(seed))
    return [one for count in counts for one in records.make(count)]


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_zipf_keys_come_as_often_as_their_rank_says(exponent: float) -> None:
    counts = Counter(_draw(Load(100, Distribution("zipf", exponent), 0)))
    weights = np.arange(1, 101) ** -exponent
    for rank in (1, 2, 10):
        expected = DRAWN * weights[rank - 1] / weights.sum()
        # Five standard deviations of a binomial.
        assert abs(counts[rank - 1] - expected) < 5 * expected**0.5
    assert set(counts) <= set(range(100))


def test_uniform_keys_come_about_equally_often() -> None:
    counts = Counter(_draw(Load(10, UNIFORM, 0)))
    assert set(counts) == set(range(10))
    assert all(abs(count - DRAWN / 10) < 5 * (DRAWN / 10) ** 0.5 for count in counts.values())


def test_sequential_keys_come_in_turn_over_all_chunks() -> None:
    keys = [key for key, _ in _records(Load(7, Distribution("sequential"), 0), 0, 3, 10, 8)]
    assert keys == [b"k%d" % (at % 7) for at in range(21)]


def test_the_same_seed_makes_the_same_records_and_another_does_not() -> None:
    load = Load(50, Distribution("zipf"), 20, tombstones=0.2)
    assert _records(load, 1, 100, 100) == _records(load, 1, 100, 100)
    assert _records(load, 1, 100) != _records(load, 2, 100)


def test_values_have_their_size_and_tombstones_their_share() -> None:
    values = [value for _, value in _records(Load(50, UNIFORM, 33, tombstones=0.25), 0, 20_000)]
    assert {len(value) for value in values if value is not None} == {33}
    assert 0.23 < values.count(None) / len(values) < 0.27
    assert None not in [value for _, value in _records(Load(5, UNIFORM, 3), 0, 5_000)]
    assert {key for key, _ in _records(Load(0, UNIFORM, 3), 0, 100)} == {None}


def test_a_distribution_is_read_or_refused() -> None:
    kind = DistributionType()
    assert kind.convert("zipf:1.2", None, None) == Distribution("zipf", 1.2)
    assert kind.convert("zipf", None, None) == Distribution("zipf", 1.0)
    for text in ("normal", "uniform:2", "zipf:", "zipf:0", "zipf:-1"):
        with pytest.raises(click.BadParameter, match="is none of uniform"):
            kind.convert(text, None, None)
    with pytest.raises(click.UsageError, match="at most"):
        Load(ZIPF_KEYS_MAX + 1, Distribution("zipf"), 0).require_drawable()


@given(st.lists(st.floats(1e-6, 900), min_size=1, max_size=300), st.floats(0.01, 1))
def test_a_quantile_is_at_most_a_hundredth_too_large(seconds: list[float], share: float) -> None:
    latencies = Latencies()
    latencies.add(seconds[:10])
    latencies.add(seconds[10:])
    exact = sorted(seconds)[max(1, int(np.ceil(share * len(seconds)))) - 1] * 1000
    quantile = latencies.quantile_ms(share)
    assert quantile is not None and exact * 0.999999 <= quantile <= exact * 1.010001
    assert latencies.document()["max"] == pytest.approx(max(seconds) * 1000, abs=0.001)


def test_nothing_measured_has_no_quantile() -> None:
    assert set(Latencies().document().values()) == {None}
