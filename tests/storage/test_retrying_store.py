"""A store that repeats its requests, over one in memory that loses requests and answers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.objects.retrying import RetryingStore
from odradek.storage.objects.store import (
    ObjectExists,
    ObjectMissing,
    StoreRefused,
    StoreUnavailable,
)
from tests.support.object_store import MemoryStore


class Time:
    """A clock that only sleeps move."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pauses_s: list[float] = []

    def pause(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        self.now_s += pause_s


def retrying(
    store: MemoryStore, time: Time, timeout_ms: int = 60_000, chance: float = 1.0
) -> RetryingStore:
    return RetryingStore(
        store, timeout_ms, clock=lambda: time.now_s, sleep=time.pause, chance=lambda: chance
    )


def test_a_request_that_succeeds_is_sent_once() -> None:
    memory, time = MemoryStore(), Time()
    retrying(memory, time).create("a", [b"1", b"2"])
    assert memory.objects == {"a": b"12"}
    assert (memory.requests, time.pauses_s) == (1, [])


@pytest.mark.parametrize("answer", ["before", "after"])
def test_each_call_is_repeated(answer: str) -> None:
    def store() -> RetryingStore:
        memory = MemoryStore(answers=[answer, answer])
        memory.objects["a"] = b"0123"
        return retrying(memory, Time())

    assert store().read("a") == b"0123"
    assert store().read_range("a", 1, 2) == b"12"
    assert store().size("a") == 4
    assert [one.key for one in store().list_objects("")] == ["a"]
    deleting = store()
    deleting.delete(["a"])
    with pytest.raises(ObjectMissing):
        deleting.read("a")


def test_a_create_whose_answer_was_lost_is_ours() -> None:
    memory = MemoryStore(answers=["after"])
    retrying(memory, Time()).create("a", b"1")
    assert memory.objects == {"a": b"1"}


def test_a_create_whose_request_was_lost_is_sent_again() -> None:
    memory = MemoryStore(answers=["before", "before"])
    retrying(memory, Time()).create("a", b"1")
    assert memory.objects == {"a": b"1"}


def test_an_equal_object_is_not_ours_without_a_lost_answer() -> None:
    memory = MemoryStore()
    memory.objects["a"] = b"1"
    with pytest.raises(ObjectExists):
        retrying(memory, Time()).create("a", b"1")


@pytest.mark.parametrize("other", [b"2", b"longer"])
def test_anothers_object_is_not_ours_after_a_lost_request(other: bytes) -> None:
    memory = MemoryStore(answers=["before"])
    memory.objects["a"] = other
    with pytest.raises(ObjectExists):
        retrying(memory, Time()).create("a", b"1")
    assert memory.objects == {"a": other}


def test_a_late_create_is_ours() -> None:
    """The first request arrives after the second one looked for it, and before that is sent."""

    class Late(MemoryStore):
        def size(self, key: str) -> int:
            try:
                return super().size(key)
            finally:
                self.objects.setdefault(key, b"1")

    memory = Late(answers=["before"])
    retrying(memory, Time()).create("a", b"1")
    assert memory.objects == {"a": b"1"}


def test_pauses_double_up_to_a_limit_and_end_before_the_deadline() -> None:
    memory, time = MemoryStore(answers=["before"] * 100), Time()
    with pytest.raises(StoreUnavailable):
        retrying(memory, time, timeout_ms=5_000).read("a")
    assert time.pauses_s == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
    assert memory.requests == 9


def test_half_of_a_pause_is_random() -> None:
    memory, time = MemoryStore(answers=["before"] * 2), Time()
    memory.objects["a"] = b""
    retrying(memory, time, chance=0.0).read("a")
    assert time.pauses_s == [0.025, 0.05]


def test_a_refusal_is_not_repeated() -> None:
    class Refusing(MemoryStore):
        def read(self, key: str) -> bytes:
            self.requests += 1
            raise StoreRefused("no")

    memory, time = Refusing(), Time()
    with pytest.raises(StoreRefused):
        retrying(memory, time).read("a")
    assert (memory.requests, time.pauses_s) == (1, [])


@given(seed=st.integers(0, 1 << 32), failing=st.floats(0.0, 0.8))
def test_creates_of_two_writers_under_any_failures(seed: int, failing: float) -> None:
    """Of two contents, the one whose create succeeds is the one that is there."""
    memory = MemoryStore(seed, failing)
    time = Time()
    for at, content in itertools.product(range(5), (b"mine", b"theirs")):
        key = str(at)
        held = memory.objects.get(key)
        try:
            retrying(memory, time, timeout_ms=1 << 40).create(key, content)
        except ObjectExists:
            assert held is not None
            assert memory.objects[key] == held
        else:
            assert held is None
            assert memory.objects[key] == content
