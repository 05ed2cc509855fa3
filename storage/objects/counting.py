"""An object store whose requests are reported, each attempt by itself, as a bill has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns

from odradek.dataclass import dataclass
from odradek.storage.files import Buffer
from odradek.storage.metering import StoreUse, present_meter
from odradek.storage.objects.store import ObjectStore, ObjectStoreError, StoredObject

PUT, GET, HEAD, LIST, DELETE = "PUT", "GET", "HEAD", "LIST", "DELETE"
# The methods that have the price of a PUT, and those that have the price of a GET.
WRITES, READS = frozenset((PUT, LIST)), frozenset((GET, HEAD))


@dataclass(slots=True)
class Request:
    """A request that has ended; one that failed has no bytes. `key` is the first of several."""

    method: str
    key: str
    begun_ns: int  # of perf_counter_ns()
    sent_bytes: int = 0
    received_bytes: int = 0
    error: ObjectStoreError | None = None


class CountingStore:
    """Passes requests on to a store, and reports each in its own thread once it has ended.

    It is also added to the meter of its context (storage/metering.py), if there is one.
    A listing is one request, and so is the deletion of any number of objects.
    """

    def __init__(self, store: ObjectStore, report: Callable[[Request], None]) -> None:
        self._store, self._report = store, report

    def create(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        """Store data."""
        with self._reported(PUT, key) as request:
            self._store.create(key, data)
            request.sent_bytes = len(data) if isinstance(data, Buffer) else sum(map(len, data))

    def read(self, key: str) -> bytes:
        """Read a whole object."""
        with self._reported(GET, key) as request:
            found = self._store.read(key)
            request.received_bytes = len(found)
            return found

    def read_range(self, key: str, position: int, size_bytes: int) -> Buffer:
        """Read exactly size_bytes."""
        with self._reported(GET, key) as request:
            found = self._store.read_range(key, position, size_bytes)
            request.received_bytes = len(found)
            return found

    def size(self, key: str) -> int:
        """Return the size in bytes."""
        with self._reported(HEAD, key):
            return self._store.size(key)

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        """List the objects whose keys begin with prefix, of one whole listing."""
        with self._reported(LIST, prefix):
            return iter(list(self._store.list_objects(prefix)))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        if keys:
            with self._reported(DELETE, keys[0]):
                self._store.delete(keys)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    @contextmanager
    def _reported(self, method: str, key: str) -> Iterator[Request]:
        request = Request(method, key, perf_counter_ns())
        try:
            yield request
        except ObjectStoreError as error:
            request.error = error
            raise
        finally:
            meter = present_meter()
            if meter is not None:
                meter.add(_use(request))
            self._report(request)


def _use(request: Request) -> StoreUse:
    method = request.method
    return StoreUse(
        int(method in WRITES), int(method in READS), request.sent_bytes, request.received_bytes
    )
