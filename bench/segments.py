"""How fast does Spark read a topic, from its segments and from the broker?

    python -m bench.segments [--megabytes N] [--sizes N,N] [--codec NAME] [--cores N]
        [--partitions N] [--shared | --shared-files]

A topic is written to a fresh Odradek, 256 MB a segment. With `--shared` it is in the bucket of a
server of S3, with a PostgreSQL as catalog, with `--shared-files` in a folder, with SQLite. Then
Spark reads the whole topic into its `noop` sink: with its Kafka source, and with
`odradek-segments` with few and with all columns. Each way is run twice, and the faster run
counts: in the first one kernels are loaded, and Java is cold. Needs Java, PySpark and its Kafka
connector (`python -m odradek.pipeline.fetch`).
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from bench.clients import send
from bench.processes import OdradekProcess
from bench.shared.stage import running
from odradek.pipeline.segment_finding import find_segments
from odradek.pipeline.segment_selection import parse_options
from odradek.pipeline.segment_source import read_segments
from odradek.pipeline.session import SessionOptions, open_session
from odradek.pipeline.source import RECORD_COLUMNS, TopicSource, read_batch

_KEYS = 100_000
_COLUMNS = {
    "segments, one number": "size_bytes",
    "segments, keys and sizes": "key,partition,offset,size_bytes,value_size_bytes",
    "segments, broker's columns": ",".join(RECORD_COLUMNS),
    "segments, all columns": None,
}
_STORE = "odradek.object.store."


def fill(
    broker: OdradekProcess, topic: str, size: int, partitions: int, megabytes: int, codec: str
) -> int:
    """Write records of one size to a topic; return their number."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"segment.bytes": str(256 << 20)}
    new = NewTopic(topic, partitions, 1, config=config)
    for created in admin.create_topics([new]).values():
        created.result()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": 5,
            "compression.type": codec,
            "log_level": 0,
        }
    )
    rng = random.Random(1)
    words = [rng.randbytes(8).hex().encode() for _ in range(64)]
    values = [b"".join(rng.choices(words, k=size // 16 + 1))[:size] for _ in range(1000)]
    count = (megabytes << 20) // (size + 24)
    for number in range(count):
        key = b"key-%06d" % rng.randrange(_KEYS)
        send(producer, topic, values[number % 1000], key)
    producer.flush(120)
    return count


def ways(
    spark: SparkSession, broker: OdradekProcess, topic: str
) -> Iterator[tuple[str, Callable[[], DataFrame]]]:
    """Yield the ways to read a topic."""
    source = TopicSource(broker.bootstrap, topic=topic)
    yield "Spark's Kafka source", lambda: read_batch(spark, source)
    for name, columns in _COLUMNS.items():
        options = {**place(broker), "topic": topic}
        if columns:
            options["columns"] = columns
        yield name, lambda options=options: read_segments(spark, **options)  # type: ignore[misc]


def place(broker: OdradekProcess) -> dict[str, str]:
    """Return the options that lead to a broker's segments."""
    catalog = broker.settings.get("odradek.catalog.url")
    if catalog is None:
        return {"path": str(broker.data)}
    store = {name: value for name, value in broker.settings.items() if name.startswith(_STORE)}
    return {"catalog": catalog, **store}


@contextmanager
def started(*, is_shared: bool, has_files: bool) -> Iterator[OdradekProcess]:
    """Run a broker, whose topics are shared or not."""
    settings = {"log.flush.acks.all": "false"}
    if is_shared or has_files:
        with running(1, is_delayed=False, has_files=has_files, settings=settings) as stage:
            yield stage.brokers[0]
        return
    with tempfile.TemporaryDirectory() as folder:
        broker = OdradekProcess(Path(folder), settings)
        broker.start()
        yield broker
        broker.stop()


def seconds(records: DataFrame) -> float:
    """Return the seconds that it takes to read all rows."""
    started = time.monotonic()
    records.write.format("noop").mode("overwrite").save()
    return time.monotonic() - started


def main() -> None:
    """Run the benchmark, and print a row for each way to read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--sizes", default="1000,100")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--shared-files", action="store_true")
    given = parser.parse_args()
    cache = Path("~/.cache/odradek").expanduser()
    session = SessionOptions(cache, master=f"local[{given.cores}]")
    with (
        started(is_shared=given.shared, has_files=given.shared_files) as broker,
        open_session(session) as spark,
    ):
        for size in map(int, given.sizes.split(",")):
            topic = f"values-of-{size}"
            count = fill(
                broker, topic, size, given.partitions, given.megabytes, given.codec
            )
            parsed = parse_options({**place(broker), "topic": topic})
            found = find_segments(parsed, parsed.selection)
            megabytes = sum(one.size_bytes for one in found) / 1e6
            print(f"{count} records, values of {size} bytes, {megabytes:.0f} MB")
            for name, read in ways(spark, broker, topic):
                took = min(seconds(read()) for _ in range(2))
                print(
                    f"  {name:28} {took:6.2f} s {megabytes / took:6.0f} MB/s "
                    f"{count / took / 1e6:6.2f} M records/s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
