"""An object store whose unusually slow requests are sent a second time; the first answer counts.

    answered in the usual time     sent once
    not answered by then           sent again, and answered by whichever ends well first
    too many of them               sent once: then the store is slow altogether

A request hangs now and then in every store. A PUT that does would hold up all later commits of a
broker until its timeout. Each kind of requests, and about each size, has a usual time of its own.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextvars import copy_context
from functools import partial
from time import monotonic
from typing import TypeVar

from odradek.storage.files import Buffer
from odradek.storage.objects.obstore_store import joined
from odradek.storage.objects.store import (
    ObjectExists,
    ObjectStore,
    ObjectStoreError,
    StoredObject,
    StoreUnavailable,
)
from odradek.storage.objects.usual_time import UsualTime

T = TypeVar("T")

# Nobody waits for larger objects, and they cost more to send again.
_BYTES_MAX = 4 << 20
_LEAST_S, _DEVIATIONS = 0.2, 8.0
# Second requests that can be saved.
_CREDITS_MAX = 4.0
_THREADS_MAX = 64


class HedgingStore:
    """Hedges creates and reads; each key must have one writer.

    A second create that finds an object there reads it: equal content is ours.
    """

    def __init__(
        self,
        store: ObjectStore,
        share: float,
        *,
        on_hedged: Callable[[], None] = lambda: None,
    ) -> None:
        """`share` is the part of the requests that may be sent again."""
        self._store, self._share, self._on_hedged = store, share, on_hedged
        self._threads = ThreadPoolExecutor(_THREADS_MAX, "bucket-request")
        self._lock = threading.Lock()
        self._times: defaultdict[tuple[str, int], UsualTime] = defaultdict(
            partial(UsualTime, _LEAST_S, _DEVIATIONS)
        )
        self._credits = 1.0

    def create(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        """Store data."""
        content = joined(data)
        if len(content) > _BYTES_MAX:
            self._store.create(key, content)
            return

        def again() -> None:
            try:
                self._store.create(key, content)
            except ObjectExists:
                if self._store.read(key) != content:
                    raise

        kind = "create", len(content).bit_length() // 2
        self._ask(kind, lambda: self._store.create(key, content), again)

    def read(self, key: str) -> bytes:
        """Read a whole object."""

        def send() -> bytes:
            return self._store.read(key)

        return self._ask(("read", 0), send, send)

    def read_range(self, key: str, position: int, size_bytes: int) -> Buffer:
        """Read exactly size_bytes."""

        def send() -> Buffer:
            return self._store.read_range(key, position, size_bytes)

        if size_bytes > _BYTES_MAX:
            return send()
        return self._ask(("range", size_bytes.bit_length() // 2), send, send)

    def size(self, key: str) -> int:
        """Return the size in bytes."""
        return self._store.size(key)

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        """List the objects whose keys begin with prefix, of one whole listing."""
        return self._store.list_objects(prefix)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        self._store.delete(keys)

    def close(self) -> None:
        """Close the store; a request that hangs ends by its timeout."""
        self._threads.shutdown(wait=False)
        self._store.close()

    # --- parts -----------------------------------------------------------------------------

    def _ask(
        self, kind: tuple[str, int], first: Callable[[], T], again: Callable[[], T]
    ) -> T:
        with self._lock:
            usual = self._times[kind]
            longest_s = usual.longest_s
            self._credits = min(self._credits + self._share, _CREDITS_MAX)
        sent = self._send(usual, first)
        if wait([sent], longest_s).done or not self._may_hedge():
            return sent.result()
        self._on_hedged()
        return _first_answer([sent, self._send(usual, again)])

    def _send(self, usual: UsualTime, request: Callable[[], T]) -> Future[T]:
        """Send a request in a thread, with this context's meter."""

        def timed() -> T:
            begun_s = monotonic()
            try:
                return request()
            finally:
                with self._lock:
                    usual.learn(monotonic() - begun_s)

        try:
            return self._threads.submit(copy_context().run, timed)
        except RuntimeError as error:  # another thread has closed the store
            raise StoreUnavailable("the store is closed") from error

    def _may_hedge(self) -> bool:
        with self._lock:
            if self._credits < 1:
                return False
            self._credits -= 1
            return True


def _first_answer(sent: Sequence[Future[T]]) -> T:
    """Return the first answer; without any, the error of a request that may still happen."""
    errors: list[ObjectStoreError] = []
    for one in as_completed(sent):
        try:
            return one.result()
        except ObjectStoreError as error:
            errors.append(error)
    raise next((one for one in errors if isinstance(one, StoreUnavailable)), errors[0])
