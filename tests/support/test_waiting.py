"""Waits return as soon as they can, and name a condition that they wait for in vain."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.support import waiting
from tests.support.waiting import last_answer, until, wait_until


def counting(calls: list[int], ends_at: int) -> bool:
    calls.append(len(calls) + 1)
    return calls[-1] >= ends_at


def test_a_wait_returns_the_value_of_its_condition() -> None:
    values: Iterator[str] = iter(["", "", "so"])
    assert wait_until(lambda: next(values)) == "so"


def test_a_wait_ends_when_another_thread_makes_it_true() -> None:
    event = threading.Event()
    threading.Timer(0.01, event.set).start()
    wait_until(event.is_set, "the event is set")


def test_a_wait_in_vain_names_the_condition() -> None:
    with pytest.raises(AssertionError, match=r"^not within 0 s: the log is cleaned\nas far as 7"):
        wait_until(lambda: False, "the log is cleaned", 0, shown=lambda: "as far as 7")
    with pytest.raises(AssertionError, match=r"not within 0 s: wait_until\(lambda: 1 > 2"):
        wait_until(lambda: 1 > 2, patience_s=0)
    with pytest.raises(AssertionError, match=r"not within 0 s: <method-wrapper"):
        wait_until([].__len__, patience_s=0)


def test_a_condition_is_looked_at_again_and_again() -> None:
    calls: list[int] = []
    with pytest.raises(AssertionError):
        wait_until(lambda: counting(calls, 1_000_000), patience_s=0.05)
    assert len(calls) > 2


def test_pauses_grow_with_the_time_that_has_passed() -> None:
    pauses = [waiting._pause_s(waited_s, 0.05) for waited_s in (0, 0.08, 0.2, 10)]
    assert pauses == [0.001, 0.01, 0.025, 0.05]


def test_the_last_answer_is_returned_whether_final_or_not() -> None:
    calls: list[int] = []

    def ask() -> int:
        calls.append(len(calls))
        return calls[-1]

    assert last_answer(ask, lambda answer: answer == 3) == 3
    assert last_answer(ask, lambda answer: False, 0) == 4


def test_a_loop_waits_for_conditions_and_for_coroutines_of_them() -> None:
    async def main() -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, event.set)
        await until(event.is_set)
        calls: list[int] = []

        async def look() -> bool:
            await asyncio.sleep(0)
            return counting(calls, 3)

        assert await until(look)
        assert calls == [1, 2, 3]

    asyncio.run(main())


def test_a_loops_wait_in_vain_names_the_condition() -> None:
    async def hang() -> bool:
        await asyncio.Event().wait()
        return True

    async def fail() -> bool:
        raise TimeoutError("of its own")

    with pytest.raises(AssertionError, match=r"not within 0.01 s: it is over\nso far 1"):
        asyncio.run(until(lambda: False, "it is over", 0.01, shown=lambda: "so far 1"))
    with pytest.raises(AssertionError, match=r"not within 0.01 s: async def hang"):
        asyncio.run(until(hang, patience_s=0.01))
    with pytest.raises(TimeoutError, match="of its own"):
        asyncio.run(until(fail, "it fails"))
