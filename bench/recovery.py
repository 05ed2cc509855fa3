"""How long does a start take after a kill? One large log, on Odradek and on Apache Kafka.

    python -m bench.recovery [--megabytes N] [--rounds N] [--size BYTES] [--batch BYTES]

Each broker is filled by the same producer (acks=1), killed, and started again; the time is that
from the start of the process to its first answer, with the log in the page cache for both. The
segment is as large as the log, so that all of it has to be read again. Needs Java and Kafka's
jars (`make kafka`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.processes import KafkaProcess, OdradekProcess, kafka_libs, kafka_tool
from bench.produce import create_topic, perform, summary

_TOPIC = "recovery"
_SETTINGS = {
    "log.segment.bytes": str(2**31 - 1),
    # Nothing but the kill decides how much there is to read.
    "log.flush.offset.checkpoint.interval.ms": "600000",
}


def measure(
    kind: type[OdradekProcess] | type[KafkaProcess], megabytes: int, size: int, batch: int
) -> float:
    """Return the seconds from start to first answer after a kill."""
    with tempfile.TemporaryDirectory() as folder:
        broker = kind(Path(folder) / "broker", _SETTINGS)
        broker.start()
        try:
            records = (megabytes << 20) // size
            create_topic(broker, _TOPIC)
            perform(broker, _TOPIC, records, size, "1", batch)
            broker.kill()
            seconds = broker.start()
            check(broker, records)
            return seconds
        finally:
            broker.stop()


def check(broker: OdradekProcess | KafkaProcess, records: int) -> None:
    """See that the whole log is there."""
    shown = kafka_tool(
        ["org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", broker.bootstrap]
        + ["--topic", _TOPIC]
    ).stdout
    assert shown.strip() == f"{_TOPIC}:0:{records}", shown


def main() -> int:
    """Run the pairs and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=65536)
    given = parser.parse_args()
    if kafka_libs() is None:
        print("Kafka's jars are not there: run `make kafka` (needs Java and Maven)")
        return 1
    print(f"start after a kill: {given.megabytes} MB in records of {given.size} B, "
          f"batch.size={given.batch}")  # fmt: skip
    ratios = []
    for number in range(1, given.rounds + 1):
        ours = measure(OdradekProcess, given.megabytes, given.size, given.batch)
        theirs = measure(KafkaProcess, given.megabytes, given.size, given.batch)
        ratios.append(theirs / ours)
        print(f"  pair {number}: Odradek {ours:.2f} s, Kafka {theirs:.2f} s, "
              f"Kafka/Odradek {ratios[-1]:.2f}", flush=True)  # fmt: skip
    print(summary("Kafka/Odradek", ratios))
    return 0


if __name__ == "__main__":
    sys.exit(main())
