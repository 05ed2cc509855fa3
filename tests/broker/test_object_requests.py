"""Requests to the object store are counted exactly, whichever threads send them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from time import perf_counter_ns

import pytest

from odradek.broker.counters import object_requests
from odradek.broker.counters.object_requests import (
    PURPOSES,
    ObjectRequests,
    purpose_of,
)
from odradek.storage.objects.counting import CountingStore, Request
from odradek.storage.objects.probe import probe
from odradek.storage.objects.retrying import RetryingStore
from odradek.storage.objects.store import (
    ObjectMissing,
    ObjectStoreError,
    StoreRefused,
    StoreUnavailable,
)
from tests.support.object_store import MemoryStore

THREADS, ROUNDS = 8, 400


@pytest.mark.parametrize(
    ("method", "key", "purpose"),
    [
        ("PUT", "wal/0000000001/000000000000", "wal"),
        ("PUT", "segments/0000000001/000000000000", "segments"),
        ("GET", "wal/0000000001/000000000000", "reads"),
        ("GET", "segments/0000000001/000000000000", "reads"),
        ("HEAD", "segments/0000000001/000000000000", "reads"),
        ("DELETE", "wal/0000000001/000000000000", "garbage"),
        ("DELETE", "probe/1", "probe"),
        ("LIST", "probe/", "probe"),
    ],
)
def test_a_request_s_purpose_follows_from_its_method_and_key(
    method: str, key: str, purpose: str
) -> None:
    assert purpose_of(method, key) == purpose


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_threads_lose_no_count() -> None:
    counts = ObjectRequests()

    def work(number: int) -> None:
        store = CountingStore(MemoryStore(), counts.count)
        for at in range(ROUNDS):
            store.create(f"wal/{number}/{at}", b"12345")
            store.create(f"segments/{number}/{at}", b"1234567")
            store.read_range(f"segments/{number}/{at}", 0, 3)
            with pytest.raises(ObjectMissing):
                store.size("segments/none")
            store.delete([f"wal/{number}/{at}"])
            counts.count_retry()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    total, found = THREADS * ROUNDS, counts.by_purpose()
    assert tuple(found) == PURPOSES
    assert {purpose: one.methods for purpose, one in found.items()} == {
        "wal": {"PUT": total},
        "segments": {"PUT": total},
        "reads": {"GET": total, "HEAD": total},
        "garbage": {"DELETE": total},
        "probe": {},
    }
    assert found["reads"].errors == {"ObjectMissing": total}
    assert [one.sent_bytes for one in found.values()] == [5 * total, 7 * total, 0, 0, 0]
    assert [one.received_bytes for one in found.values()] == [0, 0, 3 * total, 0, 0]
    assert [sum(one.times) for one in found.values()] == [total, total, 2 * total, total, 0]
    assert counts.retries == total
    tally = counts.tally()
    assert tally.requests == {
        ("wal", "PUT"): total, ("segments", "PUT"): total, ("reads", "GET"): total,
        ("reads", "HEAD"): total, ("garbage", "DELETE"): total,
    }  # fmt: skip
    assert tally.received_bytes["reads"] == 3 * total


def test_failures_and_retries_are_counted() -> None:
    counts, memory = ObjectRequests(), MemoryStore(answers=["before", "done", "before"])
    store = RetryingStore(
        CountingStore(memory, counts.count),
        60_000,
        clock=lambda: 0.0,
        sleep=lambda _: counts.count_retry(),
    )
    store.create("wal/1", b"12345")
    found = counts.by_purpose()
    assert (found["wal"].methods, found["wal"].sent_bytes) == ({"PUT": 3}, 5)
    assert found["wal"].errors == {"StoreUnavailable": 2}
    assert found["reads"].errors == {"ObjectMissing": 2}
    assert counts.retries == 2


def test_the_probe_of_a_start_is_a_purpose_of_its_own() -> None:
    counts = ObjectRequests()
    probe(CountingStore(MemoryStore(), counts.count))
    found = counts.by_purpose()
    assert found["probe"].methods == {"PUT": 2, "GET": 4, "HEAD": 1, "LIST": 1, "DELETE": 1}
    assert found["probe"].errors == {}  # it asks for two
    assert not any(one.methods for name, one in found.items() if name != "probe")
    assert counts.trouble() is None


def ended(
    counts: ObjectRequests,
    error: ObjectStoreError | None,
    begun_ns: int,
    method: str = "GET",
    key: str = "segments/1",
) -> None:
    counts.count(Request(method, key, begun_ns, error=error))


def is_failing(counts: ObjectRequests) -> bool:
    found = counts.trouble()
    assert found is not None
    return found.since_ms is not None


def test_a_store_fails_until_it_answers() -> None:
    counts = ObjectRequests()
    now_ns = perf_counter_ns()
    ended(counts, None, now_ns)
    assert counts.trouble() is None
    ended(counts, StoreUnavailable("no connection"), now_ns - 9_000_000_000)
    ended(counts, StoreRefused("check the access key"), now_ns - 4_000_000_000)
    found = counts.trouble()
    assert found is not None
    assert found.text == "check the access key"
    assert found.since_ms is not None
    assert found.since_ms >= 9_000
    assert found.last_ms < found.since_ms
    # That an object is missing is an answer.
    ended(counts, ObjectMissing("segments/1"), now_ns)
    found = counts.trouble()
    assert found is not None
    assert (found.text, found.since_ms) == ("check the access key", None)
    ended(counts, StoreUnavailable("no connection"), perf_counter_ns())
    found = counts.trouble()
    assert found is not None
    assert found.text == "no connection"
    assert found.since_ms is not None
    assert found.since_ms < 9_000


def test_a_store_fails_while_a_request_is_repeated() -> None:
    counts, memory = ObjectRequests(), MemoryStore(answers=["before"] * 3)
    memory.objects["a"] = b"1"
    seen: list[bool] = []
    store = RetryingStore(
        CountingStore(memory, counts.count),
        5_000,
        sleep=lambda _: seen.append(is_failing(counts)),
    )
    assert counts.trouble() is None
    assert store.read("a") == b"1"
    assert len(seen) == 3
    assert all(seen)
    assert not is_failing(counts)


def test_a_store_that_takes_no_puts_fails_though_it_answers_others() -> None:
    counts = ObjectRequests()
    ended(counts, StoreRefused("the quota is used up"), 1, "PUT", "segments/2")
    ended(counts, None, 2)
    assert is_failing(counts)
    ended(counts, None, 3, "PUT")
    assert not is_failing(counts)


def test_a_store_does_not_fail_that_has_the_object_of_a_put_without_an_answer() -> None:
    counts = ObjectRequests()
    ended(counts, StoreUnavailable("no answer in time"), 1, "PUT", "segments/2")
    ended(counts, ObjectMissing("segments/2"), 2, "HEAD", "segments/2")
    assert is_failing(counts)
    ended(counts, None, 3, "GET", "segments/2")
    assert not is_failing(counts)


def test_a_store_does_not_fail_that_nobody_has_asked_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = 5_000_000_000
    monkeypatch.setattr(object_requests, "perf_counter_ns", lambda: now_ns)
    counts = ObjectRequests(pause_ms=3_000)
    ended(counts, StoreUnavailable("no answer in time"), 1, "PUT")
    now_ns += 3_000_000_000
    assert is_failing(counts)
    now_ns += 1
    assert not is_failing(counts)


def test_a_store_that_takes_puts_does_not_fail_since_an_old_read() -> None:
    counts = ObjectRequests()
    ended(counts, StoreUnavailable("no answer in time"), 1, "HEAD")
    assert is_failing(counts)
    ended(counts, None, 2, "PUT")
    assert not is_failing(counts)
