"""A store that sends slow requests a second time, over one in memory whose requests hang."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.files import Buffer
from odradek.storage.metering import metered
from odradek.storage.objects.counting import CountingStore
from odradek.storage.objects.hedging import HedgingStore
from odradek.storage.objects.retrying import RetryingStore
from odradek.storage.objects.store import (
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    StoreRefused,
    StoreUnavailable,
)
from odradek.storage.objects.usual_time import UsualTime
from tests.support.object_store import MemoryStore

PATIENCE_S = 30.0


class HangingStore(MemoryStore):
    """Its first requests hang until they are let go, before or after their effect, then fail."""

    def __init__(self, *hanging: str, errors: Sequence[type[Exception]] = ()) -> None:
        super().__init__()
        self._hanging, self._errors = list(hanging), list(errors)
        self.let_go = threading.Event()

    def create(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        with self._request():
            super().create(key, data)

    def read(self, key: str) -> bytes:
        with self._request():
            return super().read(key)

    def read_range(self, key: str, position: int, size_bytes: int) -> bytes:
        with self._request():
            return super().read_range(key, position, size_bytes)

    @contextmanager
    def _request(self) -> Iterator[None]:
        when = self._hanging.pop(0) if self._hanging else "done"
        if when == "before":
            self._hang()
        yield
        if when == "after":
            self._hang()

    def _hang(self) -> None:
        assert self.let_go.wait(PATIENCE_S)
        if self._errors:
            raise self._errors.pop(0)("it hung")


class Slow(UsualTime):
    """Any request is slow."""

    @property
    def longest_s(self) -> float:
        return 0.0


class Patient(UsualTime):
    """No request is slow."""

    @property
    def longest_s(self) -> float:
        return threading.TIMEOUT_MAX


class Hedging(HedgingStore):
    """Counts its second requests."""

    def __init__(
        self, store: ObjectStore, share: float = 1.0, hedged: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(store, share, on_hedged=self._note)
        self.count, self._hedged = 0, hedged
        self._times = defaultdict(partial(Slow, 0.0, 0.0))

    def _note(self) -> None:
        self.count += 1
        self._hedged()

    def join(self) -> None:
        """Wait for all requests, also those that nobody waits for."""
        self._threads.shutdown()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda one: one.create("new", [b"01", b"23"]),
        lambda one: one.read("old"),
        lambda one: one.read_range("old", 1, 2),
    ],
)
def test_a_request_that_hangs_is_answered_by_a_second_one(
    when: str, ask: Callable[[ObjectStore], object]
) -> None:
    store, plain = HangingStore(when), MemoryStore()
    store.objects["old"] = plain.objects["old"] = b"0123"
    made = Hedging(store)
    assert ask(made) == ask(plain)
    assert made.count == 1
    assert store.objects == plain.objects
    store.let_go.set()
    made.join()
    assert store.objects == plain.objects


def test_a_second_create_refuses_the_object_of_another() -> None:
    store = HangingStore("before")
    store.objects["new"] = b"another"
    made = Hedging(store, hedged=store.let_go.set)
    with pytest.raises(ObjectExists):
        made.create("new", b"0123")
    assert made.count == 1
    assert store.objects["new"] == b"another"


@pytest.mark.parametrize(
    ("errors", "raised"),
    [
        ([StoreUnavailable, StoreRefused], StoreUnavailable),
        ([StoreRefused, StoreUnavailable], StoreUnavailable),
        ([StoreRefused, StoreRefused], StoreRefused),
    ],
)
def test_without_an_answer_it_may_still_happen_if_one_request_may(
    errors: list[type[Exception]], raised: type[Exception]
) -> None:
    store = HangingStore("before", "before", errors=errors)
    made = Hedging(store, hedged=store.let_go.set)
    with pytest.raises(raised):
        made.create("new", b"0123")


def test_an_object_without_an_answer_is_found_by_the_repetition() -> None:
    """The first create and the second one's look at the object get no answers."""
    store = HangingStore("after", "done", "after", errors=[StoreUnavailable] * 2)
    made = Hedging(store, hedged=store.let_go.set)
    RetryingStore(made, 60_000, sleep=lambda _: None).create("new", b"0123")
    assert store.objects == {"new": b"0123"}


def test_an_answer_in_the_usual_time_is_not_asked_for_again() -> None:
    store = MemoryStore()
    made = HedgingStore(store, 1.0)
    made._times = defaultdict(partial(Patient, 0.0, 0.0))
    made.create("new", b"0123")
    with pytest.raises(ObjectExists):
        made.create("new", b"0123")
    with pytest.raises(ObjectMissing):
        made.read("old")
    assert store.requests == 3


def test_a_store_that_was_closed_is_not_available() -> None:
    made = HedgingStore(MemoryStore(), 1.0)
    made.close()
    with pytest.raises(StoreUnavailable):
        made.read("old")


@given(st.integers(0, 40), st.sampled_from([0.0, 0.05, 0.25, 1.0]))
def test_no_more_than_a_share_is_sent_again(count: int, share: float) -> None:
    store = HangingStore(*["before"] * count)
    store.let_go.set()
    made = Hedging(store, share)
    for at in range(count):
        made.create(str(at), b"0123")
    made.join()
    # One was saved at the start.
    assert made.count <= 1 + count * share
    assert len(store.objects) == count


def test_each_attempt_is_on_the_bill_of_its_work() -> None:
    store = HangingStore("before")
    made = Hedging(CountingStore(store, lambda request: None))
    with metered() as meter:
        made.create("new", b"0123")
    store.let_go.set()
    made.join()
    assert meter.use.puts == 2
