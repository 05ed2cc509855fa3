"""The probe finds each thing that a store lacks, and removes its object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from odradek.storage.files import Buffer
from odradek.storage.objects.obstore_store import joined
from odradek.storage.objects.probe import probe
from odradek.storage.objects.store import (
    ObjectMissing,
    StoredObject,
    StoreRefused,
    StoreUnavailable,
)
from tests.support.object_store import MemoryStore


class Overwriting(MemoryStore):
    def create(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        self.objects[key] = joined(data)


class Blind(MemoryStore):
    def read(self, key: str) -> bytes:
        raise ObjectMissing(f"read {key}: there is no such object")


class Stale(MemoryStore):
    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        return iter(())


class Whole(MemoryStore):
    def read_range(self, key: str, position: int, size_bytes: int) -> bytes:
        return self.read(key)


class Sizeless(MemoryStore):
    def size(self, key: str) -> int:
        return 0


class Keeping(MemoryStore):
    def delete(self, keys: Sequence[str]) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Overwriting, "no create-only writes"),
        (Blind, "there is no such object"),
        (Stale, "no listings"),
        (Whole, "no reads of ranges"),
        (Sizeless, "no true sizes"),
        (Keeping, "no deletes"),
    ],
)
def test_a_lack_of_a_store_is_named(kind: type[MemoryStore], text: str) -> None:
    store = kind()
    with pytest.raises(StoreRefused) as caught:
        probe(store)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert bool(store.objects) == (kind is Keeping)


def test_a_probe_leaves_nothing() -> None:
    store = MemoryStore()
    store.objects["another"] = b""
    probe(store)
    assert list(store.objects) == ["another"]


def test_a_store_that_does_not_answer_may_be_probed_later() -> None:
    with pytest.raises(StoreUnavailable):
        probe(MemoryStore(answers=["before"]))
