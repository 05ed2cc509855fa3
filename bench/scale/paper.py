"""The tables of docs/scale.md about a large cluster, in Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.scale.model import (
    Broker,
    Load,
    Operation,
    Price,
    Prices,
    broker_of,
    demand,
    dollars_a_month,
)
from odradek.broker.shared.tails import StoringLimits
from odradek.broker.wal.entries import ROW_BYTES
from odradek.broker.wal.pacing import WalLimits

GOAL = Load(brokers=100, partitions=1_000_000, in_bytes_s=10e9, batch_bytes=16_000)
"""The cluster that the tables are about."""
_RATE = GOAL.in_bytes_s / GOAL.brokers
PUT_DOLLARS = 0.005  # for 1,000, as odradek.object.store.price.put
_PRICES = Path(__file__).with_name("prices.json")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of brokers, and the head of their column."""

    title: str
    wal: WalLimits
    storing: StoringLimits


DEFAULTS = Settings("defaults", WalLimits(), StoringLimits())
LARGE = Settings("bytes.max 8 MiB", WalLimits(entry_bytes_max=8 << 20), StoringLimits())


def save_prices(prices: Prices) -> None:
    """Write prices to the file that the tables are computed from."""
    shown = {
        one.name: [round(price.cpu_s * 1e6, 1), round(price.log_bytes)]
        for one, price in prices.items()
    }
    _PRICES.write_text(json.dumps(shown, indent=1) + "\n")


def load_prices() -> Prices:
    """Read the prices that were measured last."""
    found: dict[str, list[float]] = json.loads(_PRICES.read_text())
    return {
        Operation[name]: Price(cpu_us / 1e6, log_bytes)
        for name, (cpu_us, log_bytes) in found.items()
    }


def paper(prices: Prices) -> str:
    """Return the tables."""
    return f"{price_table(prices)}\n\n{goal_table(prices)}"


def price_table(prices: Prices) -> str:
    """Return the table of prices."""
    lines = ["| | CPU, µs | log, bytes |", "|---|---:|---:|"]
    lines += [
        f"| {one} | {prices[one].cpu_s * 1e6:,.0f} | {prices[one].log_bytes:,.0f} |"
        for one in Operation
    ]
    return "\n".join(lines)


def goal_table(prices: Prices) -> str:
    """Return the table of a large cluster with different settings."""
    settings = (DEFAULTS, LARGE)
    columns = [broker_of(GOAL, one.wal, one.storing) for one in settings]
    rows: Sequence[tuple[str, Callable[[Broker], float], int]] = (
        ("PUTs a second of a broker, WAL", lambda one: one.entries, 0),
        ("— segments", lambda one: one.storing.objects, 0),
        ("MB/s that a broker uploads, WAL", lambda one: _RATE / 1e6, 0),
        ("— segments", lambda one: one.storing.uploaded_bytes / 1e6, 0),
        ("seconds between two times that a partition is stored",
         lambda one: one.storing.period_s, 0),
        ("rows of segments a second, all", lambda one: _all(one.storing.rows), 0),
        ("transactions a second, all", lambda one: _all(_transactions(one)), 0),
        ("cores of the catalog's server", lambda one: _all(demand(one.rates, prices).cpu_s), 1),
        ("MB/s of its log", lambda one: _all(demand(one.rates, prices).log_bytes) / 1e6, 0),
        ("GB of the WAL's indexes in the catalog", lambda one: _all(_index_bytes(one)) / 1e9, 1),
        ("MB that each other broker reads at a takeover",
         lambda one: one.storing.unstored_bytes / one.others / 1e6, 0),
        ("dollars a month for PUTs", lambda one: dollars_a_month(_all(one.puts), PUT_DOLLARS), 0),
    )  # fmt: skip
    head = " | ".join(one.title for one in settings)
    lines = [f"| | {head} |", "|---|" + "---:|" * len(settings)]
    for title, figure, digits in rows:
        figures = (f"{figure(one):,.{digits}f}" for one in columns)
        lines.append(f"| {title} | {' | '.join(figures)} |")
    return "\n".join(lines)


def _all(one: float) -> float:
    return one * GOAL.brokers


def _transactions(one: Broker) -> float:
    counted = (Operation.POLL, Operation.RENEWAL, Operation.ENTRY, Operation.OBJECT)
    return sum(one.rates[each] for each in counted)


def _index_bytes(one: Broker) -> float:
    """The indexes of the entries that a broker has in the WAL."""
    entries = one.storing.unstored_bytes / (_RATE / one.entries)
    return entries * one.runs * ROW_BYTES
