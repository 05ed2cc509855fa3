"""The costs of an object store, by counts and prices: pure.

    put        requests that write or list
    get        requests that read
    out        bytes read
    storage    bytes stored, by their time

Deletions are free. A request that failed counts as any other, though stores do not charge for all
of these.
"""

from __future__ import annotations

from odradek.broker.counters.object_requests import Tally
from odradek.config.object_store import ObjectStoreConfig
from odradek.dataclass import dataclass
from odradek.storage.metering import StoreUse
from odradek.storage.objects.counting import READS, WRITES

HOUR_S = 3600
# As in AWS' calculator.
MONTH_S = 730 * HOUR_S
_REQUESTS = 1000
_GB = 1 << 30
# A pace is not taken from less: the first requests of a broker are none.
_PACE_MIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of 1,000 requests, of a GB stored for a month, and of a GB read."""

    put: float
    get: float
    gb_month: float
    gb_out: float

    def dollars(self, use: StoreUse) -> float:
        """Return the costs of requests, and of the bytes that they read."""
        return sum(_costs(self, use).values())


def prices_of(config: ObjectStoreConfig) -> Prices:
    """Return the prices of the settings."""
    return Prices(
        config.odradek_object_store_price_put,
        config.odradek_object_store_price_get,
        config.odradek_object_store_price_gb_month,
        config.odradek_object_store_price_gb_out,
    )


def bill(prices: Prices, tally: Tally, byte_seconds: float) -> dict[str, float]:
    """Return the costs by their kind; `byte_seconds` are the bytes stored, each by its time."""
    written = read = 0
    for (_, method), count in tally.requests.items():
        written += count if method in WRITES else 0
        read += count if method in READS else 0
    received_bytes = sum(tally.received_bytes.values())
    return {
        **_costs(prices, StoreUse(written, read, received_bytes=received_bytes)),
        "storage": byte_seconds / MONTH_S / _GB * prices.gb_month,
    }


def per_month(
    prices: Prices, before: Tally, after: Tally, passed_s: float, stored_bytes: int
) -> dict[str, float]:
    """Return the costs of a month in which all goes on as between two tallies."""
    times = MONTH_S / max(passed_s, _PACE_MIN_S)
    found = bill(prices, _growth(before, after), 0)
    return {
        **{kind: dollars * times for kind, dollars in found.items()},
        "storage": stored_bytes / _GB * prices.gb_month,
    }


def _costs(prices: Prices, use: StoreUse) -> dict[str, float]:
    return {
        "put": use.puts / _REQUESTS * prices.put,
        "get": use.gets / _REQUESTS * prices.get,
        "out": use.received_bytes / _GB * prices.gb_out,
    }


def _growth(before: Tally, after: Tally) -> Tally:
    """Return the counts between two tallies."""
    counts, received = before.requests, before.received_bytes
    return Tally(
        {key: count - counts.get(key, 0) for key, count in after.requests.items()},
        {key: size - received.get(key, 0) for key, size in after.received_bytes.items()},
    )
