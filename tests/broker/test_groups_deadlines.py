"""Deadlines beside a plain dictionary, and how much the heap holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.coordination.runtime import Runtime
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.leave_group import LeaveGroupRequest
from tests.broker.live import Client, client, live, on_uvloop
from tests.differential.group_requests import joining

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


@on_uvloop
async def test_the_loop_turns_once_or_twice_for_each_timer_of_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fire = Runtime._fire
    fired = 0

    def count(runtime: Runtime) -> None:  # type: ignore[type-arg]
        nonlocal fired
        fired += 1
        fire(runtime)

    settings = {"offsets.topic.num.partitions": "1"}
    async with live(tmp_path, settings) as broker, client(broker) as one:
        while await join_and_leave(one) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        monkeypatch.setattr(Runtime, "_fire", count)
        for _ in range(50):
            assert await join_and_leave(one) is ErrorCode.NONE
    assert 50 <= fired <= 150


async def join_and_leave(one: Client) -> ErrorCode:
    joined = await one.ask(joining("a-group"), version=3)
    if joined.error_code:
        return ErrorCode(joined.error_code)
    leaving = LeaveGroupRequest(group_id="a-group", member_id=joined.member_id)
    return ErrorCode((await one.ask(leaving, version=2)).error_code)
