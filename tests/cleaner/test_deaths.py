"""When the death of a cleaner thread is over, and how long the next start waits."""

from __future__ import annotations

from itertools import pairwise

from odradek.cleaner.runtime.deaths import PROBATION_MS, Deaths

BUG = SystemError("a bug")


def test_without_a_death_there_is_no_problem() -> None:
    deaths = Deaths()
    deaths.replaced(0)
    assert deaths.problem(0) is None and deaths.problem(2 * PROBATION_MS) is None


def test_a_death_is_a_problem_until_the_replacement_has_lived_for_an_hour() -> None:
    deaths = Deaths()
    deaths.add(BUG, 1_000)
    assert "not replaced" in str(deaths.problem(1_000 + 10 * PROBATION_MS))
    deaths.replaced(5_000)
    deaths.replaced(9_000)  # a look at all threads later on: they have been there
    problem = deaths.problem(5_000 + PROBATION_MS - 1)
    assert problem is not None and "SystemError: a bug" in problem
    assert deaths.problem(5_000 + PROBATION_MS) is None
    assert deaths.count == 1 and deaths.last == "SystemError: a bug"


def test_another_death_within_the_hour_begins_another_hour() -> None:
    deaths = Deaths()
    deaths.add(BUG, 0)
    deaths.replaced(0)
    deaths.add(BUG, PROBATION_MS - 1)
    deaths.replaced(PROBATION_MS)
    assert "2 cleaner threads" in str(deaths.problem(2 * PROBATION_MS - 1))
    assert deaths.problem(2 * PROBATION_MS) is None


def test_one_that_dies_again_and_again_is_a_problem_all_along() -> None:
    deaths = Deaths()
    now_ms = 0
    for _ in range(2000):
        now_ms += round(1000 * deaths.add(BUG, now_ms))
        deaths.replaced(now_ms)
        now_ms += PROBATION_MS - 1
        assert deaths.problem(now_ms) is not None


def test_each_restart_in_a_row_waits_longer_up_to_a_minute() -> None:
    deaths = Deaths()
    delays = [deaths.add(BUG, at) for at in range(2000)]
    assert delays[0] == 1
    assert all(one < other or one == 60 for one, other in pairwise(delays[:10]))
    assert set(delays[10:]) == {60}
    deaths.replaced(3_000)
    assert deaths.add(BUG, 3_000 + PROBATION_MS) == 1
