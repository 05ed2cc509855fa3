"""The time after which a request to an object store is unusually slow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.objects.usual_time import UsualTime

ESTIMATES = st.builds(UsualTime, st.floats(0.0, 0.2), st.floats(3.0, 8.0))


@given(ESTIMATES, st.floats(0.001, 25.0))
def test_a_store_that_is_always_as_slow_is_not_unusually_slow(
    usual: UsualTime, time_s: float
) -> None:
    for _ in range(500):
        usual.learn(time_s)
    assert usual.longest_s > time_s


@given(ESTIMATES, st.floats(0.001, 0.05), st.floats(0.0, 1e6))
def test_one_that_hangs_changes_it_little(
    usual: UsualTime, time_s: float, hanging_s: float
) -> None:
    for _ in range(500):
        usual.learn(time_s)
    before_s = usual.longest_s
    usual.learn(hanging_s)
    assert usual.longest_s < 2 * before_s
