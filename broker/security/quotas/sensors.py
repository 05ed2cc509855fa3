"""The rates of those who have a quota of one kind, as many as are remembered.

Client ids are whatever clients say: so many sensors are kept and no more, and one that was not
used for an hour is forgotten (ClientQuotaManager.InactiveSensorExpirationTimeSeconds).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from broker.security.quotas.arithmetic import Average, Rate, TokenBucket, Window

EXPIRE_MS = 3_600_000

K = TypeVar("K", bound=Hashable)


class Sensor:
    """How fast one client goes, and how long it was held back."""

    __slots__ = ("bucket", "limit", "rate", "throttled", "used_ms")

    def __init__(self, window: Window, bucket: TokenBucket | None = None) -> None:
        self.rate = Rate(window)
        self.bucket = bucket  # where tokens are what counts
        self.throttled = Average()
        self.limit = 0.0
        self.used_ms = 0


class Sensors(Generic[K]):
    """The sensors of one kind of quota, the longest unused first."""

    def __init__(self, make: Callable[[], Sensor], most: Callable[[], int]) -> None:
        self._make, self._most = make, most
        self._by_key: dict[K, Sensor] = {}
        # Of sensors that made room although they were in use, so that their rates began again.
        self.evictions = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._by_key)

    def use(self, key: K, limit: float, now_ms: int) -> Sensor:
        """Return who shares a rate; a new one when nobody did so of late."""
        sensor = self._by_key.pop(key, None)
        if sensor is None:
            sensor = self._make()
            self.expire(now_ms)
            while len(self._by_key) >= self._most():
                del self._by_key[next(iter(self._by_key))]
                self.evictions += 1
        self._by_key[key] = sensor
        sensor.limit, sensor.used_ms = limit, now_ms
        return sensor

    def expire(self, now_ms: int) -> None:
        """Forget those that were not used for an hour."""
        while self._by_key:
            key = next(iter(self._by_key))
            if now_ms - self._by_key[key].used_ms <= EXPIRE_MS:
                return
            del self._by_key[key]

    def latest(self, count: int) -> Iterator[tuple[K, Sensor]]:
        """Yield the ones that were used last."""
        for _, item in zip(range(count), reversed(self._by_key.items()), strict=False):
            yield item
