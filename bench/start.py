"""How soon does a broker answer, and how much memory does it take? Odradek and Apache Kafka.

    python -m bench.start [--rounds N] [--records N]

Both brokers run in turn, A B A B, each fresh and alone on the machine: from the start of the
process to the first answer with a new data directory and with the one that it has left, resident
memory after ten idle seconds, and the most of it while ProducerPerformance writes as in
bench.produce. Ratios are taken pair by pair. Odradek starts as an installed package does: from
bytecode, whatever the environment says. Needs Java and Kafka's jars (`make kafka`).
"""

from __future__ import annotations

import argparse
import compileall
import sys
import tempfile
import threading
import time
from dataclasses import astuple, dataclass
from pathlib import Path

from bench.processes import ROOT, KafkaProcess, OdradekProcess, kafka_libs, resident_bytes
from bench.produce import rate_of, summary

_IDLE_S = 10.0
_LOOK_S = 0.1
_MEGABYTE = 1_000_000
_PACKAGES = ("protocol", "config", "storage", "cleaner", "broker", "cli")
# An empty value is none: each start would compile anew what has no bytecode yet.
_AS_INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one broker; memory in MB."""

    first_start_s: float
    next_start_s: float
    idle_mb: float
    loaded_mb: float


_TITLES = ("first start", "next start", "idle memory", "memory while written to")
_UNITS = ("s", "s", "MB", "MB")


class MemoryWatch:
    """Looks at a broker's resident memory in a thread, and keeps the most there was."""

    def __init__(self, broker: OdradekProcess | KafkaProcess) -> None:
        assert broker.process is not None
        self._process = broker.process
        self.most_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self.most_bytes = max(self.most_bytes, resident_bytes(self._process))


def write_bytecode(root: Path = ROOT) -> None:
    """Compile the packages to bytecode, as pip does when it installs them."""
    for name in _PACKAGES:
        compileall.compile_dir(root / name, quiet=2)


def odradek(directory: Path) -> OdradekProcess:
    """Return a broker that starts as one that was installed."""
    return OdradekProcess(directory, environment=_AS_INSTALLED)


def measure(broker: OdradekProcess | KafkaProcess, records: int) -> Measured:
    """Start a broker twice, leave it alone, then have it written to."""
    first_start_s = broker.start()
    broker.stop()
    next_start_s = broker.start()
    try:
        assert broker.process is not None
        time.sleep(_IDLE_S)
        idle_bytes = resident_bytes(broker.process)
        with MemoryWatch(broker) as watch:
            rate_of(broker, records, 100, "1", "start")
        return Measured(
            first_start_s, next_start_s, idle_bytes / _MEGABYTE, watch.most_bytes / _MEGABYTE
        )
    finally:
        broker.stop()


def main() -> int:
    """Run the pairs and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=3_000_000)
    arguments = parser.parse_args()
    if kafka_libs() is None:
        print("Kafka's jars are not there: run `make kafka` (needs Java and Maven)")
        return 1
    write_bytecode()
    ratios: list[list[float]] = [[] for _ in _TITLES]
    for number in range(1, arguments.rounds + 1):
        pair = []
        for make in (odradek, KafkaProcess):
            with tempfile.TemporaryDirectory() as folder:
                pair.append(astuple(measure(make(Path(folder) / "broker"), arguments.records)))
        print(f"  pair {number}: Odradek {_shown(pair[0])}; Kafka {_shown(pair[1])}", flush=True)
        for found, ours, theirs in zip(ratios, *pair, strict=True):
            found.append(ours / theirs)
    for title, found in zip(_TITLES, ratios, strict=True):
        print(summary(f"{title}, Odradek's beside Kafka's", found))
    return 0


def _shown(measured: tuple[float, ...]) -> str:
    return ", ".join(
        f"{value:.2f} {unit}" if unit == "s" else f"{value:.0f} {unit}"
        for value, unit in zip(measured, _UNITS, strict=True)
    )


if __name__ == "__main__":
    sys.exit(main())
