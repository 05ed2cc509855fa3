"""The scale of a large cluster on paper, from prices that are measured here: docs/scale.md.

    python -m bench.scale                          the tables, from prices.json
    python -m bench.scale prices                   measures the prices, saves them, and holds the
                                                   model against 2 and 5 brokers at work
    python -m bench.scale storing                  holds the model of the storing against a broker
    python -m bench.scale.million                  a catalog of a million partitions
    python -m bench.scale partitions [N ...]       three brokers with so many partitions
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.scale import brokers, catalog, partitions
from bench.scale.model import broker_of, demand
from bench.scale.paper import DEFAULTS, GOAL, load_prices, paper, save_prices
from bench.servers.postgresql import running

_MIXES, _MIX_S = (2, 5), 20.0
# The partitions of a broker, records a second, odradek.wal.checkpoint.bytes, and brokers.
_STORINGS = ((100, 4_000, 16 << 20, 1), (400, 4_000, 16 << 20, 1), (7, 800, 2 << 20, 5))
_CROWDS = (5_000, 10_000, 20_000)


def measure_prices() -> None:
    """Measure and save the prices; hold the model against brokers at work."""
    with running(is_durable=True) as server:
        prices = catalog.measure(server)
        save_prices(prices)
        one = broker_of(GOAL, DEFAULTS.wal, DEFAULTS.storing)
        for count in _MIXES:
            rates, came = catalog.mix(server, one, count, _MIX_S)
            said = demand(rates, prices)
            print(
                f"{count} brokers: {came.cpu_s:.2f} cores and {came.log_bytes / 1e6:.2f} MB/s of "
                f"log; the model says {said.cpu_s:.2f} and {said.log_bytes / 1e6:.2f}",
                flush=True,
            )


def measure_storing() -> None:
    """Print the storing of each broker, and that of the model."""
    for each, records_s, checkpoint_bytes, count in _STORINGS:
        came, said = brokers.compare(each, records_s, checkpoint_bytes, count)
        print(
            f"{each} partitions on each of {count} brokers: {came.objects:.2f} objects and "
            f"{came.uploaded_bytes / 1e6:.1f} MB a second; the model says "
            f"{said.objects:.2f} and {said.uploaded_bytes / 1e6:.1f}",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("measurement", nargs="?", choices=("prices", "storing", "partitions"))
    parser.add_argument("sizes", nargs="*", type=int, default=_CROWDS)
    given = parser.parse_args(arguments)
    if given.measurement == "prices":
        measure_prices()
    elif given.measurement == "storing":
        measure_storing()
    elif given.measurement == "partitions":
        for size in given.sizes:
            print(partitions.measure(size), flush=True)
    else:
        print(paper(load_prices()))


if __name__ == "__main__":
    main()
