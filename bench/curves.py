"""How do costs grow? With the log's size, partitions, keys, connections and workers.

    python -m bench.curves [size] [partitions] [keys] [connections] [workers] [--scale F]

Curves are of Odradek alone: each should be flat, or there is a reason. Each stores its points in
bench/curves.json; `python -m bench.page` draws them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import uvloop
from confluent_kafka import Producer

from bench.cleaner_brokers import clean_stages
from bench.cleaner_load import Load as Log
from bench.cleaner_load import write_log
from bench.clients import Load, consume, create_topic, librdkafka_consume, produce
from bench.connections import TOPIC, Client, connect, keep_pace, produce_request
from bench.pairs import make, quantile
from bench.processes import ROOT, OdradekProcess, lacks_kafka, resident_bytes
from bench.questions.many import WITH_WARM_UP, rate
from bench.questions.workers import leader_ports, workers
from bench.results import keep
from bench.watch import cpu_of, cpu_s, wait_until_idle
from odradek.broker.process.limits import raise_open_files_limit
from odradek.broker.process.warm_up import warm_up

CURVES = ROOT / "bench" / "curves.json"
_RECORDS = 1_000_000
_VALUE_BYTES = 1_000
_WARM_UP_RECORDS = 50_000
_PER_TOPIC, _RECORDS_EACH = 50, 20
_PACE_PER_S, _PACE_S = 2_000, 5.0
_TRIP_CLIENTS, _TRIP_PARTITIONS, _TRIP_S = 200, 20, 6.0
_KEYED_BYTES = 50
_SEGMENT_BYTES = 256 << 20

Point = Mapping[str, float]
"""Costs by their titles, each with its unit."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Something that grows, and the costs that are measured at each size of it."""

    title: str
    unit: str  # of the size
    sizes: Sequence[int]
    measure: Callable[[Sequence[int]], Iterator[Point]]  # one point for each size, in order
    note: str = ""  # the reason why it is not flat


@contextmanager
def running(settings: Mapping[str, str] | None = None) -> Iterator[OdradekProcess]:
    """Run a fresh broker."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        broker = make("Odradek", Path(folder) / "broker", settings or {})
        assert isinstance(broker, OdradekProcess)
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()


def _by_log_size(sizes: Sequence[int]) -> Iterator[Point]:
    """Let one log grow; measure the next records, reading its last ones, and a start."""
    with running() as broker:
        for topic in ("other", "grows"):
            create_topic(broker, topic)
        there = 0
        for size_mb in sizes:
            produce(broker, "other", Load(_WARM_UP_RECORDS, _VALUE_BYTES))  # loads the code
            librdkafka_consume(broker, "other", _WARM_UP_RECORDS)
            wait_until_idle(broker)
            missing = size_mb * 1_000_000 // _VALUE_BYTES - there
            load = Load(missing, _VALUE_BYTES)
            written_s = cpu_of(broker, partial(produce, broker, "grows", load))
            there += missing
            last = min(there, 100_000)
            read = partial(librdkafka_consume, broker, "grows", last, offset=there - last)
            read_s = cpu_of(broker, read)
            broker.stop()
            started_s = broker.start()
            yield {
                "written, CPU µs a record": written_s / missing * 1e6,
                "read at the end, CPU µs a record": read_s / last * 1e6,
                "start, ms": started_s * 1e3,
            }


def _by_partitions(sizes: Sequence[int]) -> Iterator[Point]:
    for count in sizes:
        with running() as broker:
            fill(broker, count)
            load = Load(_RECORDS // 2, 100)
            produce(broker, "filled-0", load.part(5))
            written_s = cpu_of(broker, partial(produce, broker, "filled-0", load))
            read_s = cpu_of(broker, partial(consume, broker, "filled-0", load.records))
            assert broker.process is not None
            memory_bytes = resident_bytes(broker.process)
            broker.stop()
            yield {
                "written, CPU µs a record": written_s / load.records * 1e6,
                "read, CPU µs a record": read_s / load.records * 1e6,
                "memory, MB": memory_bytes / 1e6,
                "start, ms": broker.start() * 1e3,
            }


def fill(broker: OdradekProcess, partitions: int) -> None:
    """Create partitions in topics of fifty, and write some records to each."""
    names = [f"filled-{number}" for number in range(max(partitions // _PER_TOPIC, 1))]
    count = min(partitions, _PER_TOPIC)
    for name in names:
        create_topic(broker, name, count)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "log_level": 0})
    for number in range(_RECORDS_EACH):
        for name in names:
            for partition in range(count):
                producer.produce(name, bytes(200), b"k%d" % number, partition=partition)
            producer.poll(0)
    assert producer.flush(120) == 0


def _by_keys(sizes: Sequence[int]) -> Iterator[Point]:
    """Clean a log that has each key once, except a tenth that come again."""
    warm_up()
    for count in sizes:
        again = np.random.default_rng(7).choice(count, count // 10, replace=False)
        log = Log([np.concatenate([np.arange(count), again])], _KEYED_BYTES, _SEGMENT_BYTES)
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            written = write_log(log, Path(folder) / "log")
            settings = {"log.cleaner.threads": "1", "log.cleaner.backoff.ms": "500"}
            broker = OdradekProcess(Path(folder) / "broker", settings)
            (cleaned,) = clean_stages(broker, log, written)
        yield {
            "cleaned, ns a record": max(cleaned.total.seconds, 1e-3) / (1.1 * count) * 1e9,
            "memory grown by, MB": max(cleaned.peak_bytes - cleaned.before_bytes, 1) / 1e6,
        }


def _by_connections(sizes: Sequence[int]) -> Iterator[Point]:
    """Send the same number of requests a second over more and more connections."""
    raise_open_files_limit()
    for count in sizes:
        with running() as broker:
            create_topic(broker, TOPIC, 10)
            yield uvloop.run(_pace(broker, count))


async def _pace(broker: OdradekProcess, count: int) -> Point:
    assert broker.process is not None
    clients = await connect(broker, count)
    for seconds in (1.0, _PACE_S):  # the first warms up
        before_s = cpu_s(broker)
        trips_s = await keep_pace(clients, rate=_PACE_PER_S, seconds=seconds, partitions=10)
        used_s = cpu_s(broker) - before_s
    memory_bytes = resident_bytes(broker.process)
    for client in clients:
        client.transport.abort()
    return {
        "CPU µs a request": used_s / len(trips_s) * 1e6,
        "p99, ms": quantile(trips_s, 0.99) * 1e3,
        "memory, MB": memory_bytes / 1e6,
    }


def _by_workers(sizes: Sequence[int]) -> Iterator[Point]:
    """Let 200 clients send small records, each to its leader; then a producer large batches."""
    for count in sizes:
        with running(workers(count)) as broker:
            create_topic(broker, TOPIC, _TRIP_PARTITIONS)
            ports = leader_ports(broker, TOPIC)
            leaders = [ports[at % _TRIP_PARTITIONS] for at in range(_TRIP_CLIENTS)]
            requests = [produce_request(at) for at in range(_TRIP_PARTITIONS)]

            async def send(client: Client, at: int, requests: list[bytes] = requests) -> None:
                await client.ask(requests[at % _TRIP_PARTITIONS])

            rate(leaders, _TRIP_S, send)  # until each worker has loaded its kernels
            before_s = cpu_s(broker)
            trips_per_s = rate(leaders, _TRIP_S, send)
            used_s = cpu_s(broker) - before_s
            load = Load(_RECORDS, 100)
            produce(broker, TOPIC, load.part(5))
            written_s = cpu_of(broker, partial(produce, broker, TOPIC, load))
            yield {
                "round trips a second": trips_per_s,
                "CPU µs a round trip": used_s / (trips_per_s * _TRIP_S * WITH_WARM_UP) * 1e6,
                "written, CPU µs a record": written_s / load.records * 1e6,
            }


CURVES_BY_NAME: Mapping[str, Curve] = {
    "size": Curve(
        "A log that grows, records of 1 kB", "MB", (1, 10, 100, 1_000, 10_000), _by_log_size,
        "A client that connects costs some 10 ms once, which is most of the smallest log's "
        "figures. From 100 MB on, a record costs the same at any size of the log.",
    ),
    "partitions": Curve(
        "Partitions of one broker, records of 100 B", "partitions", (1, 10, 100, 1_000, 5_000),
        _by_partitions,
        "A start loads each log, in 0.7 ms; a partition takes 6 kB of memory.",
    ),
    "keys": Curve(
        "Keys of a compacted log, values of 50 B", "keys",
        (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000), _by_keys,
        "A cleaning has a fixed cost of some 30 ms, and is reported in milliseconds: both are "
        "visible at the smallest two sizes. Memory grows with the keys until the map is full "
        "(log.cleaner.dedupe.buffer.size); further keys go to temporary files: hence the rise "
        "at 100 million.",
    ),
    "connections": Curve(
        "Connections that share 2,000 requests a second", "connections",
        (1, 10, 100, 1_000, 5_000), _by_connections,
    ),
    "workers": Curve(
        "Workers of one broker, 200 connections that send records of 100 B", "workers", (1, 2),
        _by_workers,
        "A round trip costs two workers no more than one: each leads partitions of its own, "
        "clients ask the leader, and no lock or queue is shared. The clients take the second core "
        "of two, so the rate does not double here. On paper, 16 workers with a core each, at "
        "100 µs a round trip, answer 160,000 a second, if the clients have cores of their own; "
        "changes of topics and sessions go through one catalog.",
    ),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the requested curves, and print and store their points."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("curves", nargs="*", metavar="CURVE", help=", ".join(CURVES_BY_NAME))
    parser.add_argument("--scale", type=float, default=1.0, help="leaves out the larger sizes")
    given = parser.parse_args(arguments)
    if lacks_kafka():
        return 1
    for name in given.curves or CURVES_BY_NAME:
        curve = CURVES_BY_NAME[name]
        sizes = [size for size in curve.sizes if size <= max(curve.sizes) * given.scale]
        print(f"{name}: {curve.title}")
        points = []
        for size, point in zip(sizes, curve.measure(sizes), strict=True):
            points.append({"size": size, **point})
            figures = "  ".join(f"{title}: {value:,.4g}" for title, value in point.items())
            print(f"  {size:>12,} {curve.unit}  {figures}", flush=True)
        if given.scale == 1:
            keep(CURVES, name, {"points": points})
    return 0


if __name__ == "__main__":
    sys.exit(main())
