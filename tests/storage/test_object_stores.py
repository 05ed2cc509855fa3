"""The contract of an object store: a server of S3, a folder, and the tests' own in memory."""

from __future__ import annotations

import threading
import time

import pytest

from odradek.storage.objects.probe import probe
from odradek.storage.objects.retrying import RetryingStore
from odradek.storage.objects.store import (
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    ObjectStore,
)
from tests.storage.object_stores import bucket, s3_server, store

__all__ = ["bucket", "s3_server", "store"]


def test_an_object_is_read_as_it_was_created(store: ObjectStore) -> None:
    store.create("a/b", b"hello")
    assert store.read("a/b") == b"hello"
    assert type(store.read("a/b")) is bytes
    assert store.size("a/b") == 5


def test_buffers_are_joined(store: ObjectStore) -> None:
    store.create("a", [b"one", bytearray(b" two"), memoryview(b" three")])
    store.create("b", bytearray(b"mutable"))
    store.create("c", memoryview(b"a view")[2:])
    store.create("d", b"")
    assert [store.read(key) for key in "abcd"] == [b"one two three", b"mutable", b"view", b""]


def test_an_object_is_created_once(store: ObjectStore) -> None:
    store.create("a", b"first")
    with pytest.raises(ObjectExists):
        store.create("a", b"second")
    with pytest.raises(ObjectExists):
        store.create("a", b"first")
    assert store.read("a") == b"first"


def test_a_large_object_is_created_once(store: ObjectStore) -> None:
    large = bytes(range(256)) * (9 << 12)  # above the size from which the library uses parts
    store.create("large", large)
    # A server may refuse an object and close before it got all of it.
    retrying = RetryingStore(store, 60_000)
    with pytest.raises(ObjectExists):
        retrying.create("large", large[1:])
    assert store.read("large") == large
    assert store.read_range("large", len(large) - 3, 3) == large[-3:]


def test_one_of_many_creates(store: ObjectStore) -> None:
    outcomes: list[bytes | None] = []
    together = threading.Barrier(8)

    def create(content: bytes) -> None:
        together.wait()
        try:
            store.create("contended", content)
        except ObjectExists:
            outcomes.append(None)
        else:
            outcomes.append(content)

    threads = [threading.Thread(target=create, args=(b"%d" % one,)) for one in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one for one in outcomes if one is not None] == [store.read("contended")]


def test_ranges(store: ObjectStore) -> None:
    store.create("a", b"0123456789")
    assert store.read_range("a", 3, 4) == b"3456"
    assert store.read_range("a", 0, 10) == b"0123456789"
    assert store.read_range("a", 9, 1) == b"9"
    assert store.read_range("a", 10, 0) == b""


@pytest.mark.parametrize(("position", "size_bytes"), [(3, 8), (10, 1), (11, 0), (500, 3)])
def test_a_range_beyond_the_end(store: ObjectStore, position: int, size_bytes: int) -> None:
    store.create("a", b"0123456789")
    with pytest.raises(ObjectDamaged):
        store.read_range("a", position, size_bytes)


def test_a_missing_object(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissing):
        store.read("no")
    with pytest.raises(ObjectMissing):
        store.read_range("no", 0, 1)
    with pytest.raises(ObjectMissing):
        store.read_range("no", 0, 0)
    with pytest.raises(ObjectMissing):
        store.size("no")


def test_a_listing_is_in_the_order_of_keys(store: ObjectStore) -> None:
    keys = ["a/b/2", "a/b/10", "a/b-c", "a/bc/1", "a/B", "b/1"]
    for key in keys:
        store.create(key, key.encode())
    below = sorted(key for key in keys if key.startswith("a/"))
    assert [one.key for one in store.list_objects("a/")] == below
    assert [one.key for one in store.list_objects("a/b/")] == ["a/b/10", "a/b/2"]
    assert [one.key for one in store.list_objects("a/b")] == [
        "a/b-c", "a/b/10", "a/b/2", "a/bc/1",
    ]  # fmt: skip
    assert [one.key for one in store.list_objects("")] == sorted(keys)
    assert list(store.list_objects("c/")) == []
    assert [one.size_bytes for one in store.list_objects("a/b/")] == [6, 5]


@pytest.mark.parametrize("store", ["file", "s3"], indirect=True)
def test_a_listing_has_the_time_of_creation(store: ObjectStore) -> None:
    begun_ms = time.time() * 1000
    store.create("a", b"")
    [found] = store.list_objects("")
    # S3 has whole seconds.
    assert begun_ms - 1500 < found.modified_ms < time.time() * 1000 + 1500


def test_many_objects_are_listed_and_deleted(store: ObjectStore) -> None:
    keys = [f"many/{at:05}" for at in range(1005)]  # S3 lists and deletes a thousand at a time
    for key in keys:
        store.create(key, b"")
    assert [one.key for one in store.list_objects("many/")] == keys
    store.delete(keys)
    assert list(store.list_objects("many/")) == []


def test_deletes(store: ObjectStore) -> None:
    for key in ("a", "b", "c", "d"):
        store.create(key, b"")
    store.delete(["no", "a", "not either", "b"])
    store.delete(["c"])
    store.delete(["c"])
    store.delete([])
    assert [one.key for one in store.list_objects("")] == ["d"]
    store.create("a", b"again")
    assert store.read("a") == b"again"


def test_the_probe_finds_no_lack(store: ObjectStore) -> None:
    probe(store)
    assert list(store.list_objects("")) == []
