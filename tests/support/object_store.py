"""An object store in memory, whose requests may fail, and whose answers may be lost."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from odradek.storage.files import Buffer
from odradek.storage.objects.obstore_store import joined
from odradek.storage.objects.store import (
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    StoredObject,
    StoreUnavailable,
)


class MemoryStore:
    """Objects in a dict; a share of the requests fails, by a seed, before or after its effect.

    `answers` first: each next request fails "before" or "after" its effect, or is "done".
    """

    def __init__(self, seed: int = 0, failing: float = 0.0, answers: Sequence[str] = ()) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests = 0
        self._random = random.Random(seed)
        self._failing = failing
        self._answers = list(answers)
        self._is_lost = False

    def create(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        self._begin()
        if key in self.objects:
            raise ObjectExists(key)
        self.objects[key] = joined(data)
        self._end()

    def read(self, key: str) -> bytes:
        self._begin()
        found = self._object(key)
        self._end()
        return found

    def read_range(self, key: str, position: int, size_bytes: int) -> bytes:
        self._begin()
        found = self._object(key)
        if position + size_bytes > len(found):
            raise ObjectDamaged(key)
        self._end()
        return found[position : position + size_bytes]

    def size(self, key: str) -> int:
        self._begin()
        found = self._object(key)
        self._end()
        return len(found)

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        self._begin()
        found = [
            StoredObject(key, len(data), 0)
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix)
        ]
        self._end()
        return iter(found)

    def delete(self, keys: Sequence[str]) -> None:
        self._begin()
        for key in keys:
            self.objects.pop(key, None)
        self._end()

    def close(self) -> None:
        """Nothing to release."""

    def _object(self, key: str) -> bytes:
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key]

    def _begin(self) -> None:
        self.requests += 1
        if self._answers:
            answer = self._answers.pop(0)
        elif self._random.random() < self._failing:
            answer = self._random.choice(("before", "after"))
        else:
            answer = "done"
        self._is_lost = answer == "after"
        if answer == "before":
            raise StoreUnavailable("the request was lost")

    def _end(self) -> None:
        if self._is_lost:
            raise StoreUnavailable("the answer was lost")
