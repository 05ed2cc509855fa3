"""How fast does a job of Spark clean a shared topic, beside the cleaner of a broker?

    python -m bench.clean_job [--megabytes N] [--size N] [--keys N] [--partitions N] [--cores N]
        [--workers N] [--shared-files] [--no-broker]

Two topics with the same records are written to a fresh Odradek: to a server of S3, with a
PostgreSQL as catalog, or with `--shared-files` to a folder, with SQLite. `odradek pipeline clean`
cleans the first one, its broker's own cleaner the second one, and all records that remain are
compared. With workers the job runs on a standalone cluster of Spark's, each worker of which has so
many cores. The memory of the job is that of all its processes, by the kernel's proportional sizes;
workers are not among them. Needs Java and PySpark.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.clients import clean_now, create_topic, send
from bench.processes import ROOT, OdradekProcess
from bench.segments import place
from bench.servers.spark_cluster import running_cluster
from bench.shared.stage import running
from bench.watch import children_of
from odradek.pipeline.segment_source import read_segments
from odradek.pipeline.session import SessionOptions, open_session

_LOOK_S = 0.2
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)
# The WAL has up to 256 MiB of the logs before these are stored.
_SETTLED_BYTES = 300e6
# No cleaner begins by itself.
_CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}


def fill(broker: OdradekProcess, topics: list[str], given: argparse.Namespace) -> int:
    """Write the same records to topics; return their number."""
    for topic in topics:
        create_topic(broker, topic, given.partitions, _CONFIG)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "log_level": 0}
    )
    rng = random.Random(1)
    values = [rng.randbytes(given.size) for _ in range(1000)]
    count = int((given.megabytes << 20) // (given.size + 24))
    for number in range(count):
        key = b"key-%09d" % rng.randrange(given.keys)
        for topic in topics:  # the key decides on the partition, the same one in both
            send(producer, topic, values[number % 1000], key, 1 + number)
    producer.flush(600)
    return count


class Memory:
    """Watches the memory of a process and of all below it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self.most_bytes = process, 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while self._process.poll() is None:
            self.most_bytes = max(self.most_bytes, _tree_bytes(self._process.pid))
            time.sleep(_LOOK_S)


def _tree_bytes(pid: int) -> int:
    try:
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
        children = children_of(pid)
    except OSError:  # it has ended
        return 0
    own = int(found[1]) * 1024 if found else 0
    return own + sum(map(_tree_bytes, children))


def clean_by_job(broker: OdradekProcess, topic: str, master: str) -> tuple[float, int]:
    """Run the command, and show its output; return the seconds, and the bytes of memory."""
    options = place(broker)
    command = [sys.executable, "-m", "odradek.cli.main", "pipeline", "clean", "--topic", topic]
    command += ["--catalog", options.pop("catalog"), "--master", master]
    for name, value in options.items():
        command += ["--set", f"{name}={value}"]
    begun_s = time.monotonic()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    memory = Memory(process)
    assert process.stdout is not None
    for line in process.stdout:
        print(f"    {line}", end="", flush=True)
    if process.wait():
        raise SystemExit("the job failed")
    return time.monotonic() - begun_s, memory.most_bytes


def clean_by_broker(broker: OdradekProcess, topic: str) -> float:
    """Have the broker clean a topic; return the seconds."""
    begun_s = time.monotonic()
    clean_now(broker, topic)
    return time.monotonic() - begun_s


@contextmanager
def spark_master(given: argparse.Namespace) -> Iterator[str]:
    """Lend the address of a master: this machine's cores, or those of a cluster."""
    if not given.workers:
        yield f"local[{given.cores}]"
        return
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        running_cluster(Path(folder) / "spark", given.workers, given.cores) as cluster,
    ):
        yield cluster.master.address


def contents(spark: SparkSession, broker: OdradekProcess, topic: str) -> tuple[object, ...]:
    """Return the number of records, and a sum over all that they have."""
    columns = ("partition", "offset", "timestamp", "key", "value", "headers")
    records = read_segments(spark, topic=topic, columns=",".join(columns), **place(broker))
    row = records.select(
        f.count("*"), f.sum(f.xxhash64(*columns).cast("decimal(38, 0)"))
    ).first()
    assert row is not None
    return tuple(row)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--shared-files", action="store_true")
    parser.add_argument("--no-broker", action="store_true", help="Fill and clean one topic only.")
    given = parser.parse_args()
    settings = {"log.flush.acks.all": "false", "log.cleaner.threads": str(given.cores)}
    topics = ["by-job"] if given.no_broker else ["by-job", "by-broker"]
    with running(
        1, is_delayed=False, has_files=given.shared_files, settings=settings
    ) as stage:
        broker = stage.brokers[0]
        count = fill(broker, topics, given)
        stage.settle(_SETTLED_BYTES)
        megabytes = count * (given.size + 24) / 1e6
        print(f"{count:,} records, {megabytes:,.0f} MB, in each of {topics}", flush=True)
        with spark_master(given) as master:
            took_s, memory_bytes = clean_by_job(broker, "by-job", master)
        print(
            f"  job of Spark     {took_s:6.1f} s {megabytes / took_s:6.1f} MB/s "
            f"{memory_bytes / 1e6:,.0f} MB of memory", flush=True,
        )  # fmt: skip
        if given.no_broker:
            return
        took_s = clean_by_broker(broker, "by-broker")
        print(f"  broker's threads {took_s:6.1f} s {megabytes / took_s:6.1f} MB/s", flush=True)
        cache = Path("~/.cache/odradek").expanduser()
        with open_session(SessionOptions(cache, master="local[2]", packages=())) as spark:
            first, second = (contents(spark, broker, topic) for topic in topics)
        print(f"  records of both: {first} {second}, {'equal' if first == second else 'DIFFER'}")


if __name__ == "__main__":
    main()
