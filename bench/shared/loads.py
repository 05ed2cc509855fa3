"""A producer and consumers of shared topics, and the times that records take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Producer

from bench.pairs import quantile
from bench.processes import ROOT

RECORD_BYTES = 1_000
STAMP_BYTES = 8
_PATIENCE_S = 120.0
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
    settings: Mapping[str, str | int | bool] = field(default_factory=dict)
    size_bytes: int = RECORD_BYTES
    times_s: list[float] = field(default_factory=list)
    last: dict[int, float] = field(default_factory=dict)  # by partition
    count: int = 0

    def __post_init__(self) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                **_EAGER,
                **self.settings,
            }
        )
        self._filling = os.urandom(self.size_bytes - STAMP_BYTES)

    def send(self, topic: str, partition: int) -> None:
        """Send a record, and note when it is acknowledged."""
        begun_s = time.perf_counter()

        def done(error: object, message: object) -> None:
            if error is not None:
                raise RuntimeError(error)
            now_s = time.perf_counter()
            self.times_s.append(now_s - begun_s)
            self.last[partition] = now_s

        stamp = time.monotonic_ns().to_bytes(STAMP_BYTES, "big")
        while True:
            try:
                self.producer.produce(
                    topic, stamp + self._filling, partition=partition, on_delivery=done
                )
            except BufferError:
                self.producer.poll(0.01)
            else:
                self.count += 1
                return

    def flush(self) -> None:
        """Wait for all acknowledgements."""
        assert not self.producer.flush(_PATIENCE_S), "records are left"

    def send_at_rate(
        self, topic: str, partitions: int, rate: float, seconds: float
    ) -> None:
        """Send so many records a second, to one partition after the other, and wait for them."""
        begun_s, count = time.perf_counter(), 0
        while (passed_s := time.perf_counter() - begun_s) < seconds:
            while count < passed_s * rate:
                self.send(topic, count % partitions)
                count += 1
            self.producer.poll(0.001)
        self.flush()


@dataclass
class Reader:
    """A consumer in a process of its own, which prints the seconds that records took."""

    process: subprocess.Popen[str]

    def times_s(self) -> list[float]:
        """Wait for the last record; return the seconds from sending to reading each."""
        found, _ = self.process.communicate("end\n", timeout=_PATIENCE_S)
        times_s: list[float] = json.loads(found)
        return times_s


@contextmanager
def reading(bootstrap: str, topic: str, partitions: int) -> Iterator[Reader]:
    """Read a topic from now on."""
    arguments = ["-m", "bench.shared.reader", bootstrap, topic, str(partitions)]
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Reader(process)
    finally:
        process.kill()
        process.wait()


def shown(times_s: Sequence[float]) -> str:
    """Return the median and the 99th percentile as text."""
    times_ms = sorted(one * 1_000 for one in times_s)
    return f"p50 {quantile(times_ms, 0.5):.1f} ms, p99 {quantile(times_ms, 0.99):.1f} ms"
