"""An object store whose requests are repeated while the store does not answer."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from odradek.storage.files import Buffer
from odradek.storage.objects.store import (
    ObjectExists,
    ObjectMissing,
    ObjectStore,
    StoredObject,
    StoreUnavailable,
)

T = TypeVar("T")

_PAUSE_MIN_MS = 50
# Requests wait for the one that pauses longest: a store that is back is used again soon.
_PAUSE_MAX_MS = 1_000


class RetryingStore:
    """Repeats a request that ends with StoreUnavailable until its call's deadline, then raises it.

    The pauses double, and half of each is random. A request that is under way at the deadline is
    not cut off: a call takes up to one request's timeout longer. Each key must have one writer.
    """

    def __init__(
        self,
        store: ObjectStore,
        timeout_ms: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._sleep = sleep
        self._chance = chance

    def create(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        """Store data; an equal object is ours if an earlier request may have stored it."""
        content = data if isinstance(data, Buffer) else b"".join(data)
        is_unknown = False

        def attempt() -> None:
            nonlocal is_unknown
            # A server may refuse a large object and close before it was sent, so that the refusal
            # is lost as well: look before it is sent again.
            if is_unknown and self._is_ours(key, content):
                return
            try:
                self._store.create(key, content)
            except StoreUnavailable:
                is_unknown = True
                raise
            except ObjectExists:
                if not (is_unknown and self._is_ours(key, content)):
                    raise

        self._repeat(attempt)

    def read(self, key: str) -> bytes:
        """Read a whole object."""
        return self._repeat(lambda: self._store.read(key))

    def read_range(self, key: str, position: int, size_bytes: int) -> Buffer:
        """Read exactly size_bytes."""
        return self._repeat(lambda: self._store.read_range(key, position, size_bytes))

    def size(self, key: str) -> int:
        """Return the size in bytes."""
        return self._repeat(lambda: self._store.size(key))

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        """List the objects whose keys begin with prefix, of one whole listing."""
        return iter(self._repeat(lambda: list(self._store.list_objects(prefix))))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        self._repeat(lambda: self._store.delete(keys))

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _is_ours(self, key: str, content: Buffer) -> bool:
        """Return whether an equal object is there; raise ObjectExists for another one."""
        try:
            is_equal = self._store.size(key) == len(content) and self._store.read(key) == content
        except ObjectMissing:
            return False
        if not is_equal:
            raise ObjectExists(f"create {key}: another object exists already")
        return True

    def _repeat(self, attempt: Callable[[], T]) -> T:
        deadline_s = self._clock() + self._timeout_ms / 1000
        pause_ms = float(_PAUSE_MIN_MS)
        while True:
            try:
                return attempt()
            except StoreUnavailable:
                pause_s = pause_ms * (1 + self._chance()) / 2 / 1000
                if self._clock() + pause_s >= deadline_s:
                    raise
            self._sleep(pause_s)
            pause_ms = min(pause_ms * 2, _PAUSE_MAX_MS)
