"""The rates of the clients that have a quota of one kind, up to a number.

Clients choose their client ids freely, so the number of sensors is bounded, and a sensor is
forgotten after an hour without use (ClientQuotaManager.InactiveSensorExpirationTimeSeconds).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from odradek.broker.security.quotas.arithmetic import Average, Rate, TokenBucket, Window

EXPIRE_MS = 3_600_000

K = TypeVar("K", bound=Hashable)


class Sensor:
    """The rate of one client, and how long it was held back."""

    __slots__ = ("bucket", "limit", "rate", "throttled", "used_ms")

    def __init__(self, window: Window, bucket: TokenBucket | None = None) -> None:
        self.rate = Rate(window)
        self.bucket = bucket  # where the quota counts tokens
        self.throttled = Average()
        self.limit = 0.0
        self.used_ms = 0


class Sensors(Generic[K]):
    """The sensors of one kind of quota, the longest unused first."""

    def __init__(self, make: Callable[[], Sensor], most: Callable[[], int]) -> None:
        self._make, self._most = make, most
        self._by_key: dict[K, Sensor] = {}
        # Sensors in use that were removed to make room: their rates begin again at zero.
        self.evictions = 0

    def __len__(self) -> int:
        """Return the number of sensors."""
        return len(self._by_key)

    def use(self, key: K, limit: float, now_ms: int) -> Sensor:
        """Return the sensor of a key; a new one when the key has none."""
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
        """Forget the sensors that were not used for an hour."""
        while self._by_key:
            key = next(iter(self._by_key))
            if now_ms - self._by_key[key].used_ms <= EXPIRE_MS:
                return
            del self._by_key[key]

    def latest(self, count: int) -> Iterator[tuple[K, Sensor]]:
        """Iterate over the sensors that were used last, the latest first."""
        for _, item in zip(range(count), reversed(self._by_key.items()), strict=False):
            yield item
