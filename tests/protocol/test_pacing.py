"""Work in slices: the same results as in one piece, whenever it stands still."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol import pacing
from odradek.protocol.compiler import decode_prefix, encode
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.pacing import Worker, coding, paced, paced_sorted, unpaced

# With slices of no time at all code stands still after each item.
NO_TIME_S = -1.0
NEVER_S = 3_600.0


def run(
    worker: Worker, function: Callable[[], Any], slice_s: float = NO_TIME_S
) -> tuple[Any, int]:
    """Return what a function returns, and in how many slices it was run."""
    slices = 1
    is_over = worker.begin(function, slice_s)
    while not is_over:
        slices += 1
        is_over = worker.go_on(slice_s)
    return worker.take(), slices


def sums(numbers: list[list[int]]) -> list[int]:
    return [sum(paced(some)) for some in paced(numbers)]


@given(numbers=st.lists(st.lists(st.integers(), max_size=8), max_size=8))
def test_code_in_slices_does_what_it_does_in_one_piece(numbers: list[list[int]]) -> None:
    worker = Worker()
    expected = [sum(some) for some in numbers]
    items = len(numbers) + sum(map(len, numbers))
    assert run(worker, lambda: sums(numbers)) == (expected, items + 1)
    assert run(worker, lambda: sums(numbers), NEVER_S) == (expected, 1)


def test_workers_take_turns() -> None:
    noted: list[tuple[str, int]] = []

    def note(name: str, count: int) -> None:
        for number in paced(range(count)):
            noted.append((name, number))

    one, other = Worker(), Worker()
    assert not one.begin(lambda: note("one", 3), NO_TIME_S)
    assert not other.begin(lambda: note("other", 2), NO_TIME_S)
    under_way = [one, other]
    while under_way:
        under_way = [worker for worker in under_way if not worker.go_on(NO_TIME_S)]
    assert noted == [("one", 0), ("other", 0), ("one", 1), ("other", 1), ("one", 2)]


def test_a_loop_that_goes_on_in_another_worker_keeps_to_its_slices() -> None:
    one, other = Worker(), Worker()
    begun: Any = None

    def begin() -> int:  # as a coroutine's step, up to an await within its loop
        nonlocal begun
        begun = iter(paced(range(4)))
        return next(begun)

    assert run(one, begin, NEVER_S) == (0, 1)
    assert run(one, lambda: 7) == (7, 1)  # its last slice is over
    assert run(other, lambda: next(begun), NEVER_S) == (1, 1)
    assert run(other, lambda: next(begun)) == (2, 2)
    assert next(begun) == 3
    assert list(begun) == []


def test_an_error_of_a_function_comes_out_once_and_the_worker_goes_on() -> None:
    def fail() -> None:
        for number in paced(range(3)):
            assert number < 2, "the third"

    worker = Worker()
    with pytest.raises(AssertionError, match="the third"):
        run(worker, fail)
    assert run(worker, lambda: 7) == (7, 1)


def test_elsewhere_loops_are_what_they_are() -> None:
    items = [1, 2]
    assert paced(items) is items
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(paced(items)))
    thread.start()
    thread.join()
    assert found == [items]


@given(
    items=st.lists(st.tuples(st.integers(0, 9), st.integers()), max_size=80),
    counts=st.tuples(st.integers(1, 9), st.integers(2, 4), st.integers(1, 3)),
)
def test_a_sort_in_pieces_has_the_result_of_sorted(
    items: list[tuple[int, int]], counts: tuple[int, int, int]
) -> None:
    def first(item: tuple[int, int]) -> int:
        return item[0]

    worker = Worker()
    with pytest.MonkeyPatch.context() as patch:
        for name, count in zip(("_RUN_COUNT", "_MERGED_RUNS", "_HEAD_COUNT"), counts, strict=True):
            patch.setattr(pacing, name, count)
        assert run(worker, lambda: paced_sorted(items))[0] == sorted(items)
        # Many are alike for the key: they stay in the order in which they come.
        assert run(worker, lambda: paced_sorted(items, first))[0] == sorted(items, key=first)


def test_a_long_sort_stands_still_and_one_elsewhere_does_not() -> None:
    items = [number * 7_919 % 10_007 for number in range(10_000)]
    assert run(Worker(), lambda: paced_sorted(items))[1] > 20
    assert run(Worker(), lambda: paced_sorted(items, pace=unpaced)) == (sorted(items), 1)
    assert paced_sorted(items, lambda item: -item) == sorted(items, reverse=True)


def test_work_that_is_given_up_is_not_kept() -> None:
    class Large:
        pass

    def hold(large: Large) -> None:
        for _ in paced(range(2)):
            assert large

    worker, large = Worker(), Large()
    gone = weakref.ref(large)
    worker.begin(partial(hold, large), NO_TIME_S)
    del large
    assert gone() is not None
    worker.give_up()
    del worker
    gc.collect()
    assert gone() is None


def test_long_arrays_are_decoded_and_encoded_in_slices() -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=f"topic-{number}") for number in range(1_000)]
    )
    data, slices = run(Worker(), lambda: coding(encode, request, 12))
    assert data == encode(request, 12)
    assert slices > 1_000
    (decoded, _), slices = run(
        Worker(), lambda: coding(decode_prefix, MetadataRequest, 12, memoryview(data))
    )
    assert decoded == request
    assert slices > 1_000


def test_records_that_are_encoded_by_the_way_are_encoded_in_one_piece() -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=f"topic-{number}") for number in range(1_000)]
    )
    assert run(Worker(), lambda: encode(request, 12)) == (encode(request, 12), 1)
