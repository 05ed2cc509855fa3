"""Deadlines beside a plain dictionary, and how much the heap holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.coordination.deadlines import Deadlines

KEYS = st.sampled_from("abcd")
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 50)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("advance"), st.just(""), st.integers(0, 20)),
    )
)


@given(OPERATIONS)
def test_each_key_comes_up_once_and_not_before_its_time(
    operations: list[tuple[str, str, int]],
) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    now = 0
    for operation, key, number in operations:
        if operation == "set":
            deadlines.set(key, now + number)
            model[key] = now + number
        elif operation == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            now += number
            came_up = set()
            while (found := deadlines.pop(now)) is not None:
                came_up.add(found)
            assert came_up == {k for k, at in model.items() if at <= now}
            model = {k: at for k, at in model.items() if at > now}
        assert len(deadlines) == len(model)
        assert all(k in deadlines for k in model)
        first = deadlines.next()
        assert not model or (first is not None and first <= min(model.values()))


def test_moving_deadlines_later_does_not_fill_the_heap() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for now in range(1_000):
        for key in range(10):
            deadlines.set(key, now + 100)
        assert deadlines.pop(now) is None
    assert len(deadlines._heap) <= 2 * len(deadlines)


def test_the_earliest_comes_up_first() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, at in (("late", 9), ("early", 1), ("also early", 1)):
        deadlines.set(key, at)
    assert [deadlines.pop(10) for _ in range(4)] == ["early", "also early", "late", None]
