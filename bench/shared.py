"""Shared topics beside local ones: latency, throughput, and the time until others take over.

    python -m bench.shared [--catalog postgresql://…] [--set odradek.object.store.endpoint=…]
        [--store s3://bucket/prefix] [--seconds 10] [--kills 5]

Three brokers with both kinds of topics. Without addresses the catalog is a file of SQLite, and
the bucket is a folder. `bench.wal` adds the delays of a cloud.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.pairs import quantile
from bench.processes import OdradekProcess

_PARTITIONS = 12
_STORAGES = ("local", "object")
_RECORD = 1_000
_RATE = 20_000  # records a second
_PATIENCE_S = 60.0
# A client that looks for a new leader as often as it may.
_EAGER = {
    "topic.metadata.refresh.interval.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.max.ms": 100,
    "log_level": 0,
}


@dataclass
class Load:
    """A producer, and the times from sending a record to its acknowledgement."""

    bootstrap: str
    settings: Mapping[str, str | int] = field(default_factory=dict)
    times_s: list[float] = field(default_factory=list)
    last: dict[int, float] = field(default_factory=dict)  # by partition

    def __post_init__(self) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
                **_EAGER,
                **self.settings,
            }
        )
        self._value = os.urandom(_RECORD)

    def send(self, topic: str, partition: int) -> None:
        """Send a record."""
        begun_s = time.perf_counter()

        def done(error: object, message: object) -> None:
            if error is not None:
                raise RuntimeError(error)
            now_s = time.perf_counter()
            self.times_s.append(now_s - begun_s)
            self.last[partition] = now_s

        while True:
            try:
                self.producer.produce(topic, self._value, partition=partition, on_delivery=done)
            except BufferError:
                self.producer.poll(0.01)
            else:
                return

    def flush(self) -> None:
        """Wait for all acknowledgements."""
        assert not self.producer.flush(_PATIENCE_S), "records are left"


def one_at_a_time(bootstrap: str, topic: str, seconds: float) -> str:
    """Return the times of records that each wait for the one before."""
    load = Load(bootstrap, {"linger.ms": 0})
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        load.send(topic, 0)
        load.flush()
    return _times(load)


def at_rate(bootstrap: str, topic: str, seconds: float) -> str:
    """Return the times of records at 20 MB/s."""
    load = Load(bootstrap, {"linger.ms": 5})
    begun_s, count = time.perf_counter(), 0
    while (passed_s := time.perf_counter() - begun_s) < seconds:
        while count < passed_s * _RATE:
            load.send(topic, count % _PARTITIONS)
            count += 1
        load.producer.poll(0.001)
    load.flush()
    return _times(load)


def as_fast_as_possible(bootstrap: str, topic: str, seconds: float) -> str:
    """Return the throughput of one producer."""
    load = Load(bootstrap, {"linger.ms": 5, "batch.size": 131_072})
    begun_s, count = time.perf_counter(), 0
    while time.perf_counter() - begun_s < seconds:
        for _ in range(1_000):
            load.send(topic, count // 100 % _PARTITIONS)
            count += 1
        load.producer.poll(0)
    load.flush()
    return f"{count * _RECORD / (time.perf_counter() - begun_s) / 1e6:8.1f} MB/s"


QUESTIONS: Mapping[str, Callable[[str, str, float], str]] = {
    "one 1 kB record at a time": one_at_a_time,
    "20 MB/s of 1 kB records, 12 partitions": at_rate,
    "one producer, as fast as possible": as_fast_as_possible,
}


def take_over(brokers: Sequence[OdradekProcess], topic: str, kills: int) -> list[float]:
    """Kill a broker now and then; return the longest silences of a partition."""
    source, longest = random.Random(1), []
    for _ in range(kills):
        victim = source.choice(brokers)
        others = [one for one in brokers if one is not victim]
        load = Load(",".join(one.bootstrap for one in others), {"linger.ms": 0})
        silences = dict.fromkeys(range(_PARTITIONS), 0.0)
        begun_s, is_killed = time.perf_counter(), False
        while (passed_s := time.perf_counter() - begun_s) < 2 + 12:
            if passed_s > 2 and not is_killed:
                is_killed = True
                assert victim.process is not None
                os.kill(victim.process.pid, signal.SIGKILL)
                victim.process.wait()
                killed_s = time.perf_counter()
            for partition in range(_PARTITIONS):
                load.send(topic, partition)
            load.producer.poll(0.02)
            if is_killed:
                now_s = time.perf_counter()
                for partition, last_s in load.last.items():
                    if last_s < killed_s:
                        silences[partition] = now_s - killed_s
        load.flush()
        longest.append(max(silences.values()))
        victim.start()
        time.sleep(3)
    return longest


def _times(load: Load) -> str:
    times_ms = sorted(one * 1_000 for one in load.times_s)
    return f"p50 {quantile(times_ms, 0.5):7.1f} ms   p99 {quantile(times_ms, 0.99):7.1f} ms"


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalog", default="")
    parser.add_argument("--store", default="")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--kills", type=int, default=5)
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        (folder / "bucket").mkdir()
        settings = {
            "odradek.catalog.url": args.catalog or f"sqlite://{folder / 'catalog.db'}",
            "odradek.object.store.url": args.store or f"file://{folder / 'bucket'}",
            **dict(one.split("=", 1) for one in args.set),
        }
        brokers = [
            OdradekProcess(folder / str(node_id), {**settings, "node.id": str(node_id)})
            for node_id in (1, 2, 3)
        ]
        for one in brokers:
            stack.callback(one.stop)
            one.start()
        bootstrap = ",".join(one.bootstrap for one in brokers)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        made = admin.create_topics(
            [
                NewTopic(one, _PARTITIONS, 1, config={"odradek.storage": one})
                for one in _STORAGES
            ]
        )
        for future in made.values():
            future.result()
        for title, measure in QUESTIONS.items():
            for storage in _STORAGES:
                print(f"{title:42} {storage:7} {measure(bootstrap, storage, args.seconds)}")
        silences = take_over(brokers, "object", args.kills)
        print(f"silence of a partition after kill -9, of {args.kills}: "
              f"{', '.join(f'{one:.1f} s' for one in sorted(silences))}")  # fmt: skip


if __name__ == "__main__":
    main()
