"""What do many partitions cost? A broker with thousands of them beside one with a single one.

    python -m bench.partitions [--partitions N] [--records N] [--rounds N]

Every partition gets some records first. Then: how long a start takes after a clean stop and after
a kill, how many files are open, how much memory is in use, and how fast one producer writes to
one of the partitions, in turn with a broker that has no other. Needs Java and Kafka's jars
(`make kafka`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import OdradekProcess, kafka_libs, resident_bytes
from bench.produce import rate_of, summary

_PER_TOPIC = 50
_RECORDS_EACH = 20


def fill(broker: OdradekProcess, partitions: int) -> None:
    """Create partitions in topics of fifty, and write some records to each."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    names = [f"t{number}" for number in range(max(partitions // _PER_TOPIC, 1))]
    count = min(partitions, _PER_TOPIC)
    wanted = [NewTopic(name, count, 1) for name in names]
    for created in admin.create_topics(wanted, operation_timeout=120).values():
        created.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "log_level": 0})
    for number in range(_RECORDS_EACH):
        for name in names:
            for partition in range(count):
                producer.produce(name, b"x" * 200, b"k%d" % number, partition=partition)
            producer.poll(0)
    producer.flush(120)


def open_files(broker: OdradekProcess) -> int:
    """Return how many descriptors a broker has."""
    assert broker.process is not None
    return len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir()))


def report(broker: OdradekProcess, what: str, started_s: float) -> None:
    """Print how a broker that was started is."""
    assert broker.process is not None
    print(f"  {what}: {started_s:.2f} s to the first answer, {open_files(broker)} open files, "
          f"{resident_bytes(broker.process) >> 20} MB", flush=True)  # fmt: skip


def main() -> int:
    """Run it and print a row for each question."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if kafka_libs() is None:
        print("Kafka's jars are not there: run `make kafka` (needs Java and Maven)")
        return 1
    print(f"{given.partitions} partitions in one broker, beside one partition")
    with tempfile.TemporaryDirectory() as folder:
        many, single = OdradekProcess(Path(folder) / "many"), OdradekProcess(Path(folder) / "one")
        many.start()
        started_s = time.monotonic()
        fill(many, given.partitions)
        print(f"  created and filled in {time.monotonic() - started_s:.1f} s, "
              f"{open_files(many)} open files")  # fmt: skip
        many.stop()
        report(many, "after a clean stop", many.start())
        many.kill()
        report(many, "after a kill", many.start())
        many.stop()
        ratios = []
        for number in range(1, given.rounds + 1):
            rates = []
            for broker in (many, single):
                broker.start()
                rates.append(rate_of(broker, given.records, 100, "1", f"produce-{number}"))
                if broker is many:
                    print(f"  under load: {open_files(broker)} open files, "
                          f"{resident_bytes(broker.process) >> 20} MB")  # fmt: skip
                broker.stop()
            ratios.append(rates[0] / rates[1])
            print(f"  pair {number}: {rates[0]:,.0f} records/s of {given.partitions} partitions, "
                  f"{rates[1]:,.0f} of one, ratio {ratios[-1]:.2f}", flush=True)  # fmt: skip
        print(summary("ratio", ratios))
    return 0


if __name__ == "__main__":
    sys.exit(main())
