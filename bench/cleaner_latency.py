"""Do clients notice the cleaner? Round trips without a cleaning and during one, in both brokers.

    python -m bench.cleaner_latency [--rounds N] [--records N] [--keys N] [--broker odradek|kafka]

Each round fills a compacted topic; then one client sends a record of 100 B with acks=1 to another
topic, waits for the answer, and sends the next: first while nothing is cleaned, then, once
min.cleanable.dirty.ratio is lowered, until the broker reports the end of its cleaning. Only round
trips that began between the reports of a cleaning's start and end count as trips during it.
Needs Java and Kafka's jars (`make kafka`).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from bench.clients import send
from bench.pairs import Broker, quantile
from bench.processes import KafkaProcess, OdradekProcess, lacks_kafka
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

_COMPACTED, _PINGED = "compacted", "pinged"
_VALUE_BYTES = 100
_SEGMENT_BYTES = 64 << 20
_SEGMENT_BYTES_MIN = 1 << 20
_PRODUCE_VERSION = 9
_PATIENCE_S = 300.0
_WARM_UP_TRIPS = 2_000
_STAMP = r"^\[?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})\]? .*"
_BEGAN = re.compile(
    _STAMP + r"(?:Beginning cleaning of log |began to clean log=)compacted-0", re.MULTILINE
)
_ENDED = re.compile(_STAMP + r"\s*Log cleaner thread \d+ cleaned log compacted-0", re.MULTILINE)

# The start of a round trip on the wall clock, and its duration, in seconds.
Trip = tuple[float, float]


@dataclass
class Trips:
    """The round trips of a broker, without and during cleanings."""

    quiet: list[Trip] = field(default_factory=list)
    cleaning: list[Trip] = field(default_factory=list)
    cleaning_s: float = 0.0


class Pinger:
    """One connection that sends one record after another, each after the last answer."""

    def __init__(self, broker: Broker) -> None:
        record = Record(0, int(time.time() * 1000), None, bytes(_VALUE_BYTES), ())
        partition = PartitionProduceData(index=0, records=encode_batch([record]))
        topic = TopicProduceData(name=_PINGED, partition_data=[partition])
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])
        self._request = encode_request(request, _PRODUCE_VERSION, 1, "pinger")
        self._socket = socket.create_connection(("127.0.0.1", broker.port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, until: Callable[[int], bool]) -> list[Trip]:
        """Send records until `until` is true of their number."""
        trips: list[Trip] = []
        while not until(len(trips)):
            began_s, started_s = time.time(), time.perf_counter()
            self._socket.sendall(self._request)
            size = int.from_bytes(self._read(4), "big")
            self._read(size)
            trips.append((began_s, time.perf_counter() - started_s))
        return trips

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data


class Cleanings:
    """A broker's own reports of when it began and ended to clean the compacted topic."""

    def __init__(self, broker: Broker) -> None:
        self._log_file = broker.log_file
        self._seen = 0

    def ended(self) -> bool:
        """Return whether a cleaning that `take` has not returned yet has ended."""
        return len(self.spans()) > self._seen

    def take(self) -> list[tuple[float, float]]:
        """Return the cleanings that ended since the last call."""
        spans = self.spans()
        found, self._seen = spans[self._seen :], len(spans)
        return found

    def spans(self) -> list[tuple[float, float]]:
        """Return (start, end) of all cleanings that have ended, on the wall clock."""
        text = self._log_file.read_text(errors="replace")
        began, ended = ([_moment(one) for one in p.findall(text)] for p in (_BEGAN, _ENDED))
        return list(zip(began, ended, strict=False))


def _moment(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S,%f").timestamp()


def measure(broker: Broker, rounds: int, records: int, keys: int) -> Trips:
    """Run the rounds on a fresh, running broker."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    # The topic has several segments; the last is not cleaned.
    segment_bytes = min(_SEGMENT_BYTES, max(records * _VALUE_BYTES // 4, _SEGMENT_BYTES_MIN))
    never = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0",
             "segment.bytes": str(segment_bytes), "segment.index.bytes": "1048576"}  # fmt: skip
    topics = [NewTopic(_COMPACTED, 1, 1, config=never), NewTopic(_PINGED, 1, 1)]
    for created in admin.create_topics(topics).values():
        created.result()
    pinger, cleanings, trips = Pinger(broker), Cleanings(broker), Trips()
    for number in range(rounds + 1):
        fill(broker, records, keys)
        time.sleep(1.0)  # broker and system flush the records meanwhile
        pinger.run(lambda count: count >= _WARM_UP_TRIPS)
        quiet = pinger.run(lambda count: count >= 4 * _WARM_UP_TRIPS)
        set_ratio(admin, "0.0")
        busy = pinger.run(_until(cleanings.ended))
        set_ratio(admin, "1.0")
        spans = cleanings.take()
        if number == 0:
            continue  # the first cleaning loads the kernels, or warms the JVM up
        trips.quiet += quiet
        trips.cleaning += [t for t in busy if any(a <= t[0] <= b for a, b in spans)]
        trips.cleaning_s += sum(b - a for a, b in spans)
    pinger.close()
    return trips


def _until(ended: Callable[[], bool]) -> Callable[[int], bool]:
    """Return a check for the end of a cleaning that reads the log file only now and then."""
    deadline_s = time.monotonic() + _PATIENCE_S
    look_at_s = 0.0

    def is_over(count: int) -> bool:
        nonlocal look_at_s
        now_s = time.monotonic()
        if now_s < look_at_s:
            return False
        if now_s > deadline_s:
            raise TimeoutError("the broker reports no cleaning")
        look_at_s = now_s + 0.1
        return ended()

    return is_over


def fill(broker: Broker, records: int, keys: int) -> None:
    """Write records of random keys to the compacted topic, from one producer."""
    source = random.Random(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "acks": 1,
                         "batch.size": 65536, "queue.buffering.max.messages": 1_000_000,
                         "log_level": 0})
    value = os.urandom(_VALUE_BYTES)
    for at in range(records):
        key = b"key-%08d" % source.randrange(keys)
        send(producer, _COMPACTED, value, key)
        if at % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(_PATIENCE_S)
    assert left == 0, f"{left} records were not acknowledged"


def set_ratio(admin: AdminClient, ratio: str) -> None:
    """Let the compacted topic be cleaned at once, or never."""
    entry = ConfigEntry(
        "min.cleanable.dirty.ratio", ratio, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(
        ConfigResource.Type.TOPIC, _COMPACTED, incremental_configs=[entry]
    )
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()


def quantile_us(trips: Sequence[Trip], share: float) -> float:
    """Return the microseconds that a share of the round trips does not exceed."""
    return 1e6 * quantile([took_s for _, took_s in trips], share)


def report(name: str, trips: Trips) -> None:
    """Print a broker's rows."""
    print(f"{name}: {trips.cleaning_s:.1f} s of cleanings")
    for what, some in (("without", trips.quiet), ("cleaning", trips.cleaning)):
        p50, p99, p999 = (quantile_us(some, share) for share in (0.5, 0.99, 0.999))
        print(f"  {what:9} {len(some):7} round trips  p50 {p50:6.0f} us  p99 {p99:6.0f} us  "
              f"p99.9 {p999:6.0f} us  largest {quantile_us(some, 1):6.0f} us")  # fmt: skip
    ratio = quantile_us(trips.cleaning, 0.99) / quantile_us(trips.quiet, 0.99)
    print(f"  p99 during a cleaning is {ratio:.2f} times the p99 without", flush=True)


def main() -> int:
    """Measure both brokers, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=2_660_000)
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--broker", choices=["odradek", "kafka"])
    given = parser.parse_args()
    if given.broker != "odradek" and lacks_kafka():
        return 1
    print(f"acks=1 round trips of {_VALUE_BYTES} B beside a topic of {given.records} records "
          f"over {given.keys} keys, {given.rounds} rounds; load {os.getloadavg()[0]:.1f}")
    for kind in (OdradekProcess, KafkaProcess):
        name = kind.__name__.removesuffix("Process")
        if given.broker not in (None, name.lower()):
            continue
        with tempfile.TemporaryDirectory() as folder:
            broker = kind(Path(folder) / "broker", {"log.cleaner.backoff.ms": "100"})
            broker.start()
            try:
                report(name, measure(broker, given.rounds, given.records, given.keys))
            finally:
                broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
