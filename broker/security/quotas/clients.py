"""The quotas of users and client ids: their units, and how long a client has to wait.

    produce, fetch     bytes a second, over a window; the wait is not bounded
    request            percent of the event loop, over a window; waits for one sample at most
    mutations          partitions created and deleted a second, from a bucket of tokens

As in Kafka, the response has the time for which the client should wait, and the broker does not
read from its connection for that time (KIP-219).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.broker.errors import Refusal
from odradek.broker.security.quotas.arithmetic import TokenBucket, Window
from odradek.broker.security.quotas.entities import (
    FETCH,
    MUTATION,
    PRODUCE,
    REQUEST,
    Entity,
    Quotas,
)
from odradek.broker.security.quotas.limits import Key, Limits
from odradek.broker.security.quotas.sensors import Sensor, Sensors
from odradek.config.quota import QuotaConfig
from odradek.config.values import INT32_MAX
from odradek.protocol.errors import ErrorCode

# Kafka's mutation-rate uses the defaults of metrics.num.samples and metrics.sample.window.ms.
_METRIC_WINDOW = Window(2, 30_000)


class RateQuota:
    """One kind of quota that is a rate over a window (ClientQuotaManager)."""

    def __init__(
        self, window: Window, most: Callable[[], int], throttle_max_ms: int = INT32_MAX
    ) -> None:
        self._window, self._throttle_max_ms = window, throttle_max_ms
        self.limits = Limits({})
        self.sensors: Sensors[Key] = Sensors(lambda: Sensor(window), most)

    def find(self, user: str, client_id: str, now_ms: int) -> Sensor | None:
        """Return the sensor of a client; None when it has no quota."""
        found = self.limits.find(user, client_id)
        return None if found is None else self.sensors.use(*found, now_ms)

    def throttle_ms(self, sensor: Sensor, now_ms: int) -> int:
        """Return for how long a client has to wait."""
        return min(sensor.rate.throttle_ms(sensor.limit, now_ms), self._throttle_max_ms)

    def at_once(self, sensor: Sensor) -> int:
        """Return the bytes that a client which was idle for long may have without a wait."""
        return int(min(sensor.limit * self._window.full_seconds, INT32_MAX))


class MutationQuota:
    """The quota of changes to topics (ControllerMutationQuotaManager, KIP-599)."""

    def __init__(self, window: Window, most: Callable[[], int]) -> None:
        self.limits = Limits({})
        self.sensors: Sensors[Key] = Sensors(
            lambda: Sensor(_METRIC_WINDOW, TokenBucket(window)), most
        )

    def spend(
        self, user: str, client_id: str, count: int, now_ms: int, *, is_strict: bool
    ) -> int:
        """Take one token for each changed partition; return for how long to wait.

        A strict quota takes none, and raises Refusal, while tokens are owed.
        """
        found = self.limits.find(user, client_id)
        if found is None:
            return 0
        sensor = self.sensors.use(*found, now_ms)
        bucket = sensor.bucket
        assert bucket is not None
        if is_strict and (owed_ms := bucket.throttle_ms(sensor.limit, now_ms)):
            raise TooManyMutations(owed_ms)
        sensor.rate.record(count, now_ms)
        bucket.record(count, sensor.limit, now_ms)
        return 0 if is_strict else bucket.throttle_ms(sensor.limit, now_ms)


class TooManyMutations(Refusal):
    """The client may not change topics for a while."""

    def __init__(self, throttle_ms: int) -> None:
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self.throttle_ms = throttle_ms


class ClientQuotas:
    """All quotas of users and client ids; the event loop owns it."""

    def __init__(
        self, config: QuotaConfig, most: Callable[[], int], now_ms: Callable[[], int]
    ) -> None:
        """Begin without a quota. `now_ms` returns a time that never goes back."""
        self.now_ms = now_ms
        window = Window(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self.produce, self.fetch = RateQuota(window, most), RateQuota(window, most)
        self.request = RateQuota(window, most, window.sample_ms)
        self.mutations = MutationQuota(
            Window(
                config.controller_quota_window_num,
                config.controller_quota_window_size_seconds * 1000,
            ),
            most,
        )

    @property
    def by_kind(self) -> Mapping[str, RateQuota | MutationQuota]:
        """The quotas by their names in requests."""
        return {
            PRODUCE: self.produce,
            FETCH: self.fetch,
            REQUEST: self.request,
            MUTATION: self.mutations,
        }

    def put_in_force(self, entries: Mapping[Entity, Quotas]) -> None:
        """Use these quotas from now on; the counted amounts stay."""
        for kind, quota in self.by_kind.items():
            quota.limits = Limits(
                {entity: quotas[kind] for entity, quotas in entries.items() if kind in quotas}
            )
