"""The bucket of a simulation: its requests take time, and fail as the seed decides.

    away        no request is answered for a while
    refused     a request fails before it has any effect
    lost        it has its effect, and its answer is lost
    late        its answer is lost, and it has its effect later
    duplicate   it is answered, and has its effect once more later

A deletion of an object that a row of the catalog names is noted at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from odradek.broker.catalog.wal_rows import object_key
from odradek.broker.metadata.statements import Connection
from odradek.storage.files import Buffer
from odradek.storage.objects.obstore_store import joined
from odradek.storage.objects.store import (
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    StoredObject,
    StoreUnavailable,
)
from tests.histories.history import History
from tests.simulation.cluster.catalog import SimulatedCatalog
from tests.simulation.shared.threads import ThreadedNetwork

T = TypeVar("T")

_LATENCIES_S = (0.002, 0.03)
_AWAY_S = 0.3
_LATE_MAX_S = 4.0


class BucketOfReplicas:
    """The bucket as replicas read it: their leaders free objects, and replicas are built again."""

    def __init__(self, bucket: SimulatedBucket) -> None:
        self._bucket = bucket

    def read_range(self, key: str, position: int, size_bytes: int) -> bytes:
        """Read a part of an object."""
        return self._bucket.read_range_if_there(key, position, size_bytes)


class SimulatedBucket:
    """Objects in a dict; threads of brokers ask for them. See ObjectStore."""

    def __init__(
        self, loop: ThreadedNetwork, seed: int, catalog: SimulatedCatalog, history: History
    ) -> None:
        self._loop, self._catalog, self._history = loop, catalog, history
        self.chance = random.Random(f"bucket {seed}")
        self._latency_s = self.chance.choice(_LATENCIES_S)
        self.objects: dict[str, bytes] = {}
        self.away_until_s = 0.0
        # Of all requests, the share that is refused, that is late or lost, that comes twice.
        self.refused_share = self.lost_share = self.duplicate_share = 0.0
        self.requests = 0

    def heal(self) -> None:
        """End all troubles; what is late is late all the same."""
        self.away_until_s = 0.0
        self.refused_share = self.lost_share = self.duplicate_share = 0.0

    # --- requests ------------------------------------------------------------------------------

    def create(self, key: str, data: Buffer | Sequence[Buffer]) -> None:
        """Store an object."""
        content = bytes(joined(data))

        def effect() -> None:
            if key in self.objects:
                raise ObjectExists(key)
            self.objects[key] = content

        self._request(effect, changes=True)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""

        def effect() -> None:
            for key in keys:
                if self.objects.pop(key, None) is not None and self._catalog.read(
                    lambda connection, key=key: is_named(connection, key)  # type: ignore[misc]
                ):
                    self._history.troubles.append(f"garbage: {key} was deleted, a row names it")

        self._request(effect, changes=True)

    def read(self, key: str) -> bytes:
        """Read an object."""
        return self._request(lambda: self._object(key))

    def read_range(self, key: str, position: int, size_bytes: int) -> bytes:
        """Read a part of an object; note that it is missing."""
        try:
            return self.read_range_if_there(key, position, size_bytes)
        except ObjectMissing:
            self._history.troubles.append(
                f"garbage: {key} is not there, {self._loop.current.name} reads it"
            )
            raise

    def read_range_if_there(self, key: str, position: int, size_bytes: int) -> bytes:
        """Read a part of an object, which another broker may have freed."""
        found = self._request(lambda: self._object(key))
        if position + size_bytes > len(found):
            raise ObjectDamaged(key)
        return found[position : position + size_bytes]

    def size(self, key: str) -> int:
        """Return the size of an object."""
        return len(self._request(lambda: self._object(key)))

    def list_objects(self, prefix: str) -> Iterator[StoredObject]:
        """List objects."""

        def effect() -> list[StoredObject]:
            return [
                StoredObject(key, len(data), 0)
                for key, data in sorted(self.objects.items())
                if key.startswith(prefix)
            ]

        return iter(self._request(effect))

    def close(self) -> None:
        """There is nothing to release."""

    # --- parts ---------------------------------------------------------------------------------

    def _object(self, key: str) -> bytes:
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key]

    def _request(self, effect: Callable[[], T], *, changes: bool = False) -> T:
        self.requests += 1
        chance, loop = self.chance, self._loop
        loop.wait(chance.expovariate(1 / self._latency_s))
        if loop.time() < self.away_until_s:
            loop.wait(chance.random() * _AWAY_S)
            raise StoreUnavailable("the bucket is away")
        if chance.random() < self.refused_share:
            raise StoreUnavailable("the bucket refuses a request")
        is_lost = chance.random() < self.lost_share
        if is_lost and changes and chance.random() < 0.5:
            self._do_later(effect)
            raise StoreUnavailable("a request is late")
        result = effect()
        if changes and chance.random() < self.duplicate_share:
            self._do_later(effect)
        loop.wait(chance.expovariate(1 / self._latency_s))
        if is_lost:
            raise StoreUnavailable("an answer was lost")
        return result

    def _do_later(self, effect: Callable[[], object]) -> None:
        def do() -> None:
            with suppress(ObjectExists):
                effect()

        wait_s = self.chance.random() * _LATE_MAX_S
        self._loop.call_later(wait_s, do, context=self._loop.clients.context())


def named_keys(connection: Connection) -> set[str]:
    """Return the keys that rows of the catalog name."""
    keys = {key for (key,) in connection.execute("SELECT DISTINCT key FROM segment")}
    entries = "SELECT session, sequence FROM wal_entry WHERE body IS NULL"
    return keys | {object_key(*place) for place in connection.execute(entries)}


def is_named(connection: Connection, key: str) -> bool:
    """Return whether a row names an object."""
    return key in named_keys(connection)
