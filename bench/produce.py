"""How fast does one Java producer write? ProducerPerformance on Odradek and on Apache Kafka.

    python -m bench.produce [--records N] [--rounds N] [--size BYTES] [--acks 1|all]

Both brokers run in turn, A B A B, each fresh and alone on the machine; the ratio is taken pair by
pair, and its median counts. Needs Java and Kafka's jars (`make kafka`).
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.processes import KafkaProcess, OdradekProcess, kafka_libs, kafka_tool

_RATE = re.compile(r"([\d.]+) records/sec")
_TOPIC = "produce"


def rate_of(
    broker: OdradekProcess | KafkaProcess, records: int, size: int, acks: str, topic: str
) -> float:
    """Return the records/s that one producer reaches on a running broker, after a warm-up.

    The topic is created, with one partition.
    """
    create_topic(broker, topic)
    rate = 0.0
    for count in (records // 5, records):
        rate = perform(broker, topic, count, size, acks)
    return rate


def create_topic(
    broker: OdradekProcess | KafkaProcess, topic: str, partitions: int = 1
) -> None:
    """Create a topic."""
    kafka_tool(
        ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap]
        + ["--create", "--topic", topic, "--partitions", str(partitions)]
        + ["--replication-factor", "1"]
    )


def perform(
    broker: OdradekProcess | KafkaProcess,
    topic: str,
    records: int,
    size: int,
    acks: str,
    batch_bytes: int = 65536,
) -> float:
    """Run ProducerPerformance to its end; return its records/s."""
    properties = [f"bootstrap.servers={broker.bootstrap}", f"acks={acks}", "linger.ms=5"]
    properties.append(f"batch.size={batch_bytes}")
    done = kafka_tool(
        ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic]
        + ["--num-records", str(records), "--record-size", str(size), "--throughput", "-1"]
        + ["--producer-props", *properties],
        timeout_s=500,
        flags=(),
    )
    return float(_RATE.findall(done.stdout)[-1])


def summary(name: str, ratios: Sequence[float]) -> str:
    """Return the line that ends a run of pairs."""
    median = statistics.median(ratios)
    return f"  {name}: median {median:.2f}, from {min(ratios):.2f} to {max(ratios):.2f}"


def run_pair(records: int, size: int, acks: str) -> tuple[float, float]:
    """Measure both brokers one after the other; return (Odradek's, Kafka's) records/s."""
    rates = []
    for kind in (OdradekProcess, KafkaProcess):
        with tempfile.TemporaryDirectory() as folder:
            broker = kind(Path(folder) / "broker")
            broker.start()
            try:
                rates.append(rate_of(broker, records, size, acks, _TOPIC))
            finally:
                broker.stop()
    return rates[0], rates[1]


def main() -> int:
    """Run the pairs and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--acks", default="1")
    arguments = parser.parse_args()
    if kafka_libs() is None:
        print("Kafka's jars are not there: run `make kafka` (needs Java and Maven)")
        return 1
    print(f"ProducerPerformance acks={arguments.acks} linger.ms=5 batch.size=65536, "
          f"{arguments.records} records of {arguments.size} B")  # fmt: skip
    ratios = []
    for number in range(1, arguments.rounds + 1):
        ours, theirs = run_pair(arguments.records, arguments.size, arguments.acks)
        ratios.append(ours / theirs)
        print(f"  pair {number}: Odradek {ours:,.0f} records/s, Kafka {theirs:,.0f} records/s, "
              f"ratio {ratios[-1]:.2f}", flush=True)  # fmt: skip
    print(summary("ratio", ratios))
    return 0


if __name__ == "__main__":
    sys.exit(main())
