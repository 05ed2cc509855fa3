"""Limits how often an address may connect (KIP-612, ConnectionQuotas)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from odradek.broker.security.quotas.arithmetic import Window
from odradek.broker.security.quotas.entities import CONNECTION, IP, Entity, Quotas
from odradek.broker.security.quotas.sensors import Sensor, Sensors
from odradek.config.quota import QuotaConfig

logger = logging.getLogger(__name__)

# The time between two lines in the log for one address.
_LOG_INTERVAL_MS = 60_000
# The number of addresses that are logged in that time.
_LOGGED_MAX = 100

Rates = Mapping[str | None, float]
"""Connections a second by address; None is any other address."""


class AddressRates:
    """The rates of addresses; the event loop owns it."""

    def __init__(
        self, config: QuotaConfig, most: Callable[[], int], now_ms: Callable[[], int]
    ) -> None:
        self.now_ms = now_ms
        window = Window(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._throttle_max_ms = window.sample_ms
        self.sensors: Sensors[str] = Sensors(lambda: Sensor(window), most)
        self.rates: Rates = {}
        self._logged_ms: dict[str, int] = {}

    def put_in_force(
        self, entries: Mapping[Entity, Quotas], hosts: Mapping[str, Sequence[str]]
    ) -> None:
        """Use these quotas from now on; `hosts` has the addresses of each name."""
        rates: dict[str | None, float] = {}
        for entity, quotas in entries.items():
            parts = dict(entity)
            if IP in parts and CONNECTION in quotas:
                name = parts[IP]
                for address in (None,) if name is None else hosts[name]:
                    rates[address] = quotas[CONNECTION]
        self.rates = rates

    def delay_ms(self, address: str) -> int:
        """Count a connection, or return for how long it has to wait; then it is not counted."""
        limit = self.rates.get(address)
        if limit is None:
            limit = self.rates.get(None)
            if limit is None:
                return 0
        now_ms = self.now_ms()
        sensor = self.sensors.use(address, limit, now_ms)
        sensor.rate.record(1, now_ms)
        delay_ms = min(sensor.rate.throttle_ms(limit, now_ms), self._throttle_max_ms)
        if delay_ms:
            sensor.rate.record(-1, now_ms)
            sensor.throttled.record(delay_ms, now_ms)
            self._report(address, limit, now_ms)
        return delay_ms

    def _report(self, address: str, limit: float, now_ms: int) -> None:
        """Log a refusal, once a minute for each address: a flood must not fill the disk."""
        for known in [
            one for one, at in self._logged_ms.items() if now_ms - at >= _LOG_INTERVAL_MS
        ]:
            del self._logged_ms[known]
        if address not in self._logged_ms and len(self._logged_ms) < _LOGGED_MAX:
            self._logged_ms[address] = now_ms
            logger.warning(
                "refused connections address=%s reason=more than %s=%g a second",
                address,
                CONNECTION,
                limit,
            )
