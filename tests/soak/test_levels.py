"""Leaks are found, and a cluster that only fluctuates has none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.soak.levels import Quantity, growing

_END_S = 21_600.0
_MEMORY = Quantity("memory, MB", 10)
_SAMPLES = 300
_NOISE = st.lists(st.floats(-5, 5), min_size=_SAMPLES, max_size=_SAMPLES)


def _judged(values: list[float]) -> list[str]:
    points = [(at * _END_S / len(values), value) for at, value in enumerate(values)]
    return growing({_MEMORY: {"broker 1": points}}, _END_S)


@given(st.floats(1, 500), _NOISE)
def test_a_level_with_noise_is_no_leak(level: float, noise: list[float]) -> None:
    assert _judged([level + one for one in noise]) == []


@given(st.floats(1, 500), st.integers(2, 30), _NOISE)
def test_a_level_that_begins_again_at_each_restart_is_no_leak(
    level: float, restarts: int, noise: list[float]
) -> None:
    each = max(_SAMPLES // (3 * restarts), 1)
    rises = [level * (0.5 + 0.5 * (at % each) / each) for at in range(_SAMPLES)]
    assert _judged([rise + one for rise, one in zip(rises, noise, strict=True)]) == []


@given(st.floats(1, 500), st.floats(1.5, 10), _NOISE)
def test_steady_growth_is_a_leak(level: float, times: float, noise: list[float]) -> None:
    # By more than a tenth of what there is and the noise, from one third to the next one.
    growth = 3 * (times * level / 2 + _MEMORY.noise + 30)
    values = [
        level + growth * at / _SAMPLES + one for at, one in enumerate(noise)
    ]
    (found,) = _judged(values)
    assert found.startswith("memory, MB of broker 1 grows: ")


@given(st.floats(1, 500), _NOISE)
def test_single_peaks_are_no_leak(level: float, noise: list[float]) -> None:
    values = [level + one for one in noise]
    values[-1] = values[-20] = 100 * level + 1_000
    assert _judged(values) == []


def test_too_few_samples_are_no_proof() -> None:
    (found,) = _judged([1.0] * 7)
    assert found == "memory, MB of broker 1: too few samples to judge"
