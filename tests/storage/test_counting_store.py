"""A store that reports each request: exactly once, with its bytes, its time and its error."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from odradek.storage.metering import StoreUse, metered
from odradek.storage.objects.counting import CountingStore, Request
from odradek.storage.objects.retrying import RetryingStore
from odradek.storage.objects.store import (
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    StoredObject,
    StoreRefused,
    StoreUnavailable,
)
from tests.support.object_store import MemoryStore


def shown(requests: list[Request]) -> list[tuple[str, str, int, int, str]]:
    return [
        (one.method, one.key, one.sent_bytes, one.received_bytes, type(one.error).__name__)
        for one in requests
    ]


def test_each_request_is_reported_with_its_bytes() -> None:
    found: list[Request] = []
    store = CountingStore(MemoryStore(), found.append)
    store.create("wal/1", [b"12", memoryview(b"345")])
    store.create("segments/1", b"1234567")
    assert store.read("wal/1") == b"12345"
    assert bytes(store.read_range("segments/1", 2, 3)) == b"345"
    assert store.size("segments/1") == 7
    listed = store.list_objects("wal/")
    assert len(found) == 6  # before the listing is looked at
    assert list(listed) == [StoredObject("wal/1", 5, 0)]
    store.delete(["wal/1", "segments/1"])
    assert shown(found) == [
        ("PUT", "wal/1", 5, 0, "NoneType"),
        ("PUT", "segments/1", 7, 0, "NoneType"),
        ("GET", "wal/1", 0, 5, "NoneType"),
        ("GET", "segments/1", 0, 3, "NoneType"),
        ("HEAD", "segments/1", 0, 0, "NoneType"),
        ("LIST", "wal/", 0, 0, "NoneType"),
        ("DELETE", "wal/1", 0, 0, "NoneType"),
    ]
    begins = [one.begun_ns for one in found]
    assert begins == sorted(begins)
    assert begins[0] > 0


def test_no_request_is_sent_to_delete_nothing() -> None:
    found: list[Request] = []
    CountingStore(MemoryStore(), found.append).delete([])
    assert found == []


def test_a_request_that_fails_is_reported_with_its_error_and_without_bytes() -> None:
    found: list[Request] = []
    store = CountingStore(MemoryStore(answers=["done", "before", "after"]), found.append)
    store.create("k", b"1234")
    for error in (StoreUnavailable, StoreUnavailable):
        with pytest.raises(error):
            store.read("k")
    with pytest.raises(ObjectExists):
        store.create("k", b"1234")
    with pytest.raises(ObjectDamaged):
        store.read_range("k", 3, 2)
    with pytest.raises(ObjectMissing):
        store.size("none")
    assert shown(found)[1:] == [
        ("GET", "k", 0, 0, "StoreUnavailable"),
        ("GET", "k", 0, 0, "StoreUnavailable"),
        ("PUT", "k", 0, 0, "ObjectExists"),
        ("GET", "k", 0, 0, "ObjectDamaged"),
        ("HEAD", "none", 0, 0, "ObjectMissing"),
    ]


def test_an_error_in_the_middle_of_a_listing_is_the_listing_s() -> None:
    class Broken(MemoryStore):
        def list_objects(self, prefix: str) -> Iterator[StoredObject]:
            yield StoredObject("a", 1, 0)
            raise StoreRefused("no more")

    found: list[Request] = []
    with pytest.raises(StoreRefused):
        CountingStore(Broken(), found.append).list_objects("a")
    assert shown(found) == [("LIST", "a", 0, 0, "StoreRefused")]


def test_each_attempt_counts() -> None:
    found: list[Request] = []
    memory = MemoryStore(answers=["before", "done", "after"])
    store = RetryingStore(
        CountingStore(memory, found.append), 60_000, clock=lambda: 0.0, sleep=lambda _: None
    )
    store.create("wal/1", b"12345")
    # Lost, looked for, stored without an answer, and found by its size and its bytes.
    assert shown(found) == [
        ("PUT", "wal/1", 0, 0, "StoreUnavailable"),
        ("HEAD", "wal/1", 0, 0, "ObjectMissing"),
        ("PUT", "wal/1", 0, 0, "StoreUnavailable"),
        ("HEAD", "wal/1", 0, 0, "NoneType"),
        ("GET", "wal/1", 0, 5, "NoneType"),
    ]
    assert memory.requests == len(found)


def test_a_meter_has_the_requests_of_its_context_as_a_bill_has_them() -> None:
    memory = MemoryStore(answers=["before", "done", "after"])
    store = RetryingStore(
        CountingStore(memory, lambda _: None), 60_000, clock=lambda: 0.0, sleep=lambda _: None
    )
    with metered() as meter:
        store.create("wal/1", b"12345")  # the requests of test_each_attempt_counts
        assert meter.use == StoreUse(puts=2, gets=3, received_bytes=5)
        with metered() as inner:
            assert list(store.list_objects("wal/")) == [StoredObject("wal/1", 5, 0)]
            store.create("wal/2", b"12")
            store.delete(["wal/2"])
        with ThreadPoolExecutor(1) as others:
            others.submit(store.read, "wal/1").result()
        assert store.read("wal/1") == b"12345"
    store.read("wal/1")
    assert meter.use == StoreUse(puts=2, gets=4, received_bytes=10)
    assert inner.use == StoreUse(puts=2, sent_bytes=2)


def test_threads_share_a_meter() -> None:
    store = CountingStore(MemoryStore(), lambda _: None)
    store.create("k", bytes(3))

    def read() -> None:
        for _ in range(500):
            store.read("k")

    with metered() as meter, ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(copy_context().run, read) for _ in range(4)]:
            done.result()
    assert meter.use == StoreUse(gets=2000, received_bytes=6000)


@pytest.mark.parametrize("seed", range(20))
def test_no_request_is_missed_whatever_fails(seed: int) -> None:
    found: list[Request] = []
    memory = MemoryStore(seed, failing=0.3)
    store = RetryingStore(
        CountingStore(memory, found.append), 60_000, clock=lambda: 0.0, sleep=lambda _: None
    )
    for at in range(20):
        store.create(f"k{at}", b"x" * at)
        assert store.read(f"k{at}") == b"x" * at
    assert len(found) == memory.requests
    done = [one for one in found if one.error is None]
    # A create whose answer was lost is known by a look, and its bytes count for nothing.
    assert sum(one.sent_bytes for one in done) <= sum(range(20))
    assert sum(one.received_bytes for one in done) >= sum(range(20))
