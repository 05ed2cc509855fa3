"""The work of brokers in the catalog and the bucket, from a load and measured prices.

    load, settings --> Broker: entries of the WAL, storing --> Rates x Prices --> demand

The numbers of the settings are the product's own defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bench.scale.storing import Storing, play
from odradek.broker.shared.tails import StoringLimits
from odradek.broker.wal.pacing import WalLimits

_POLLS, _RENEWALS = 25.0, 2.0
_MONTH_S = 365.25 * 86_400 / 12


class Operation(StrEnum):
    """The work of a broker in the catalog."""

    POLL = "a look for news"
    RENEWAL = "a renewed lease"
    ENTRY = "an entry of the WAL"
    RUN = "— each partition in it"
    OBJECT = "an object with segments"
    ROW = "— each segment in it"
    FREED_ENTRY = "a freed entry of the WAL"
    FREED_RUN = "— each partition in a freed one"
    GARBAGE = "an object that is deleted"


@dataclass(frozen=True, slots=True)
class Price:
    """The price of an operation for the catalog's server."""

    cpu_s: float
    log_bytes: float  # of PostgreSQL's own write-ahead log


Rates = Mapping[Operation, float]
Prices = Mapping[Operation, Price]


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a cluster, spread evenly."""

    brokers: int
    partitions: int
    in_bytes_s: float
    batch_bytes: float


@dataclass(frozen=True, slots=True)
class Broker:
    """The work of one broker of a cluster, a second."""

    entries: float
    runs: float  # partitions in an entry
    storing: Storing
    others: int

    @property
    def puts(self) -> float:
        """Its PUTs."""
        return self.entries + self.storing.objects

    @property
    def rates(self) -> Rates:
        """Its work in the catalog; its share of the work that one broker does for all."""
        storing = self.storing
        return {
            Operation.POLL: _POLLS,
            Operation.RENEWAL: _RENEWALS,
            Operation.ENTRY: self.entries,
            Operation.RUN: self.entries * self.runs,
            Operation.OBJECT: storing.objects,
            Operation.ROW: storing.rows,
            Operation.FREED_ENTRY: self.entries,
            Operation.FREED_RUN: self.entries * self.runs,
            Operation.GARBAGE: self.puts,
        }


def broker_of(load: Load, wal: WalLimits, limits: StoringLimits) -> Broker:
    """Return the work of each broker of a cluster.

    An entry is full, or as large as the budget of PUTs lets it become.
    """
    rate = load.in_bytes_s / load.brokers
    partitions = load.partitions // load.brokers
    entries = max(rate / wal.entry_bytes_max, min(wal.puts_per_s, 1 / wal.linger_s))
    runs = min(partitions, max(rate / entries / load.batch_bytes, 1))
    others = load.brokers - 1
    return Broker(entries, runs, play(partitions, rate, limits, others, entries), others)


def demand(rates: Rates, prices: Prices) -> Price:
    """Return the CPU seconds and the bytes of the log that work costs the catalog, a second."""
    return Price(
        sum(rate * prices[one].cpu_s for one, rate in rates.items()),
        sum(rate * prices[one].log_bytes for one, rate in rates.items()),
    )


def dollars_a_month(puts: float, price_of_1000: float) -> float:
    """Return the price of a rate of requests."""
    return puts * _MONTH_S * price_of_1000 / 1_000
