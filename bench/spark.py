"""How fast does Spark read? A batch, a stream to its end and a first batch, Odradek and Kafka.

    python -m bench.spark [--records N] [--rounds N] [--size BYTES] [--partitions N] [--starts N]

Both brokers are filled with the same records first. Then they run in turn, A B A B, each started
again and alone on the machine with one Spark session that serves all rounds; each pair gives a
ratio, and the median counts. Each round measures

- a batch of all records, with a checksum of keys and values, so that all of them are decoded;
- a stream over all records in ten micro-batches, each with the same checksum;
- a stream that continues at the end of a topic: the time from its start until a record that is
  produced then is in a committed batch.

A part of the batch and one start come first, unmeasured. Needs Java, Kafka's jars (`make kafka`)
and the pipeline extra; the first run fetches Spark's connector.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer
from pyspark.sql import functions as f

from bench.clients import create_topic
from bench.pairs import Broker, summary
from bench.processes import KafkaProcess, OdradekProcess, lacks_kafka
from odradek.pipeline.session import SessionOptions, open_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TOPIC, _QUIET = "read", "quiet"
_MICRO_BATCHES = 10
_WARM_UP_SHARE = 5
# Values are cut from this many random bytes, so that no codec and no cache helps.
_POOL_BYTES = 1 << 20
_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a broker in one round."""

    batch_rows_per_s: float
    stream_rows_per_s: float
    first_batch_s: float  # the median of the starts


# Each ratio is larger the faster Odradek is.
_RATIOS: Mapping[str, Callable[[Figures, Figures], float]] = {
    "rows/s of a batch, Odradek/Kafka": (
        lambda ours, theirs: ours.batch_rows_per_s / theirs.batch_rows_per_s
    ),
    "rows/s of a stream, Odradek/Kafka": (
        lambda ours, theirs: ours.stream_rows_per_s / theirs.stream_rows_per_s
    ),
    "time to the first batch, Kafka/Odradek": (
        lambda ours, theirs: theirs.first_batch_s / ours.first_batch_s
    ),
}


class Bench:
    """Spark's reads of one broker after the other; owns the state that all rounds share."""

    def __init__(self, spark: SparkSession, given: argparse.Namespace, folder: Path) -> None:
        self._spark, self._given, self._folder = spark, given, folder
        self._checkpoints = 0
        # The checksum of all records, which must be the same in each round of both brokers.
        self._checksum: int | None = None

    def run(self, broker: Broker) -> Figures:
        """Run one round on a filled broker that has just started."""
        self._read(broker, self._given.records // _WARM_UP_SHARE)
        batch_s = self._read(broker, self._given.records)
        stream_s = self._stream(broker)
        return Figures(
            self._given.records / batch_s,
            self._given.records / stream_s,
            self._first_batch(broker),
        )

    def _read(self, broker: Broker, records: int) -> float:
        """Read a number of records in one batch; return the seconds."""
        partitions = self._given.partitions
        ends = {str(one): _count(records, partitions, one) for one in range(partitions)}
        options = self._options(broker, endingOffsets=json.dumps({_TOPIC: ends}))
        started_s = time.perf_counter()
        frame = self._spark.read.format("kafka").options(**options).load()
        count, checksum = _sum_up(frame)
        took_s = time.perf_counter() - started_s
        assert count == records, f"{count} records of {records}"
        if records == self._given.records:
            self._check(checksum)
        return took_s

    def _stream(self, broker: Broker) -> float:
        """Read all records as a stream that ends; return the seconds."""
        sums: dict[int, tuple[int, int]] = {}

        def sum_up(frame: DataFrame, number: int) -> None:
            sums[number] = _sum_up(frame)

        bound = -(-self._given.records // _MICRO_BATCHES)
        options = self._options(
            broker, startingOffsets="earliest", maxOffsetsPerTrigger=str(bound)
        )
        started_s = time.perf_counter()
        frame = self._spark.readStream.format("kafka").options(**options).load()
        writer = frame.writeStream.foreachBatch(sum_up).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._new_checkpoint())).start()
        query.awaitTermination()
        took_s = time.perf_counter() - started_s
        assert sum(count for count, _ in sums.values()) == self._given.records
        checksum = 0
        for _, one in sums.values():
            checksum ^= one
        self._check(checksum)
        return took_s

    def _first_batch(self, broker: Broker) -> float:
        """Return the median of the seconds from a stream's start to a new record's commit."""
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        checkpoint = self._new_checkpoint()
        commits = checkpoint / "commits"
        options = self._options(broker, subscribe=_QUIET, startingOffsets="earliest")
        took_s = []
        for number in range(self._given.starts + 1):
            known = _numbers(commits)
            started_s = time.perf_counter()
            frame = self._spark.readStream.format("kafka").options(**options).load()
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
            query = writer.start()
            producer.produce(_QUIET, b"%d" % number)
            assert producer.flush(_PATIENCE_S) == 0
            while _numbers(commits) == known:
                assert query.isActive, query.exception()
                assert time.perf_counter() - started_s < _PATIENCE_S
                time.sleep(0.001)
            took_s.append(time.perf_counter() - started_s)
            query.processAllAvailable()
            query.stop()
        return statistics.median(took_s[1:])

    def _check(self, checksum: int) -> None:
        if self._checksum is None:
            self._checksum = checksum
        assert checksum == self._checksum, "not the records that were read before"

    def _options(self, broker: Broker, **options: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": _TOPIC, **options}

    def _new_checkpoint(self) -> Path:
        self._checkpoints += 1
        return self._folder / f"checkpoint-{self._checkpoints}"


def fill(broker: Broker, records: int, size: int, partitions: int) -> float:
    """Start a broker, write the records, and stop it; return the seconds of writing."""
    broker.start()
    try:
        create_topic(broker, _TOPIC, partitions)
        create_topic(broker, _QUIET)
        settings = {"linger.ms": 20, "batch.size": 65536, "log_level": 0}
        producer = Producer({"bootstrap.servers": broker.bootstrap, **settings})
        pool = random.Random(1).randbytes(_POOL_BYTES + size)
        started_s = time.monotonic()
        for number in range(records):
            at = number * 101 % _POOL_BYTES
            key, value = b"%d" % number, pool[at : at + size]
            while True:
                try:
                    producer.produce(_TOPIC, value, key, number % partitions)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(_PATIENCE_S) == 0
        return time.monotonic() - started_s
    finally:
        broker.stop()


def _sum_up(frame: DataFrame) -> tuple[int, int]:
    """Return the count of records, and a checksum that does not depend on their order."""
    record: Column = f.xxhash64("key", "value")
    (row,) = frame.agg(f.count("*"), f.bit_xor(record)).collect()
    return row[0], row[1] or 0


def _count(records: int, partitions: int, partition: int) -> int:
    """Return the number of the first `records` that are in a partition."""
    return (records - partition + partitions - 1) // partitions


def _numbers(folder: Path) -> set[str]:
    return {one.name for one in folder.glob("[0-9]*")}


def run_pairs(given: argparse.Namespace, folder: Path) -> list[tuple[Figures, Figures]]:
    """Fill both brokers, run the rounds, and print a row for each."""
    brokers: list[Broker] = [OdradekProcess(folder / "odradek"), KafkaProcess(folder / "kafka")]
    for broker in brokers:
        seconds = fill(broker, given.records, given.size, given.partitions)
        print(f"  filled {_name(broker)} in {seconds:.1f} s", flush=True)
    cache = Path(os.environ.get("ODRADEK_CACHE", "~/.cache/odradek")).expanduser()
    settings = {"spark.driver.memory": "2g"}
    pairs = []
    with open_session(SessionOptions(cache, master=given.master, settings=settings)) as spark:
        bench = Bench(spark, given, folder)
        for number in range(1, given.rounds + 1):
            pair = []
            for broker in brokers:
                broker.start()
                try:
                    figures = bench.run(broker)
                finally:
                    broker.stop()
                print(f"  pair {number}: {_name(broker):7} "
                      f"batch {figures.batch_rows_per_s:11,.0f} rows/s   "
                      f"stream {figures.stream_rows_per_s:11,.0f} rows/s   "
                      f"first batch {figures.first_batch_s * 1000:6,.0f} ms",
                      flush=True)  # fmt: skip
                pair.append(figures)
            pairs.append((pair[0], pair[1]))
    return pairs


def _name(broker: Broker) -> str:
    return type(broker).__name__.removesuffix("Process")


def main() -> int:
    """Run the pairs, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--starts", type=int, default=7, help="measured starts of a stream")
    parser.add_argument("--master", default="local[2]", help="Spark's master")
    given = parser.parse_args()
    if lacks_kafka():
        return 1
    print(f"Spark's Kafka source on {given.master}: {given.records} records of {given.size} B "
          f"in {given.partitions} partitions")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        pairs = run_pairs(given, Path(folder))
    for what, ratio in _RATIOS.items():
        print(summary(what, [ratio(ours, theirs) for ours, theirs in pairs]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
