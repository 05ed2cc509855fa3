"""How long do clients wait? Round trips, the way from producer to consumer, both under load."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from confluent_kafka import Producer

from bench.clients import Load, consume, create_topic, produce
from bench.pairs import Broker, Figure, Question, Values, quantile
from bench.stamped_reader import STAMP_BYTES

_FIRST_TRIPS = 3_000
_TRIPS = 10_000
_VALUE_BYTES = 100
_RATE_PER_S = 10_000
_SECONDS = 15.0
_WARM_UP_S = 5.0
_MIXED_RECORDS = 2_000_000
_QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def _ask_round_trips(broker: Broker, scale: float) -> Values:
    """Measure the first trips of a broker that has just started, and the trips of a warm one."""
    values = {}
    first, count = max(int(_FIRST_TRIPS * scale), 100), max(int(_TRIPS * scale), 100)
    for acks in ("1", "all"):
        create_topic(broker, f"trips-{acks}")
        trips_s = round_trips(broker, f"trips-{acks}", acks, first + 2 * count)
        looks = {"warm": trips_s[-count:]}
        if acks == "1":  # later the broker has not just started
            looks = {"first": trips_s[:first], **looks}
        for look, some_s in looks.items():
            for name, share in _QUANTILES.items():
                values[f"acks={acks}, {look}, {name}"] = quantile(some_s, share) * 1e6
    return values


def round_trips(broker: Broker, topic: str, acks: str, count: int) -> Sequence[float]:
    """Send one record after another with librdkafka, each after the last acknowledgement.

    A record before the first one, with which the client connects, is not counted.
    """
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 0}
    producer = Producer({**settings, "acks": acks})
    value, trips_s = bytes(_VALUE_BYTES), []
    for _ in range(1 + count):
        started_s = time.perf_counter()
        producer.produce(topic, value)
        assert producer.flush(60) == 0
        trips_s.append(time.perf_counter() - started_s)
    return trips_s[1:]


def _ask_end_to_end(broker: Broker, scale: float) -> Values:
    create_topic(broker, "paced")
    seconds = max(_SECONDS * scale, 1.0)
    ways_s = _ways(broker, "paced", int(_RATE_PER_S * _WARM_UP_S), int(_RATE_PER_S * seconds))
    return {name: quantile(ways_s, share) * 1e3 for name, share in _QUANTILES.items()}


def _ways(broker: Broker, topic: str, warm_up: int, count: int) -> Sequence[float]:
    """Produce at a pace while another process consumes; return the seconds of each record."""
    total = warm_up + count
    reading = ["-m", "bench.stamped_reader", broker.bootstrap, topic, str(total)]
    with subprocess.Popen([sys.executable, *reading], stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        _produce_at_pace(broker, topic, total)
        ways_s: list[float] = json.loads(reader.stdout.read())
    assert len(ways_s) == total
    return ways_s[warm_up:]


def _produce_at_pace(broker: Broker, topic: str, total: int) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 0, "acks": 1}
    producer = Producer(settings)
    padding = bytes(_VALUE_BYTES - STAMP_BYTES)
    started_s, sent = time.monotonic(), 0
    while sent < total:
        due = min(int((time.monotonic() - started_s) * _RATE_PER_S), total)
        for _ in range(due - sent):
            stamp = time.monotonic_ns().to_bytes(STAMP_BYTES, "big")
            producer.produce(topic, stamp + padding)
        sent = due
        producer.poll(0)
        time.sleep(0.001)
    assert producer.flush(60) == 0


def _ask_mixed(broker: Broker, scale: float) -> Values:
    """Write one log and read another at full speed, and measure round trips meanwhile."""
    records = max(int(_MIXED_RECORDS * scale), 1_000)
    for topic in ("read", "written", "trips"):
        create_topic(broker, topic)
    produce(broker, "read", Load(records))
    rates = {}

    def write() -> None:
        rates["records/s written"] = produce(broker, "written", Load(records))

    def read() -> None:
        rates["records/s read"] = consume(broker, "read", records)

    threads = [threading.Thread(target=one) for one in (write, read)]
    for one in threads:
        one.start()
    trips_s: list[float] = []
    while any(one.is_alive() for one in threads):
        trips_s += round_trips(broker, "trips", "1", 100)
    for one in threads:
        one.join()
    return {**rates, "round trip p99": quantile(trips_s, 0.99) * 1e3}


ROUND_TRIPS = Question(
    "round-trips",
    "One record of 100 B after another, each after the last acknowledgement (librdkafka)",
    [
        Figure("acks=1, first, p50", "µs", more_is_better=False, at_least=1.3),
        Figure("acks=1, first, p99", "µs", more_is_better=False, at_least=5.0),
        Figure("acks=1, first, p99.9", "µs", more_is_better=False),
        *[
            Figure(f"acks={acks}, warm, {name}", "µs", more_is_better=False)
            for acks in ("1", "all")
            for name in _QUANTILES
        ],
    ],
    _ask_round_trips,
    note="The first 3,000 round trips are those of a broker that has just started. Once both are "
    "warm, the rest is the time that threads of client and broker need to wake each other up. "
    "With acks=all Odradek waits for the disk: an `fdatasync` alone takes 0.21 to 0.25 ms.",
)

END_TO_END = Question(
    "end-to-end",
    f"From producer to consumer at {_RATE_PER_S:,} records of 100 B a second (librdkafka)",
    [
        Figure("p50", "ms", more_is_better=False),
        Figure("p99", "ms", more_is_better=False, at_least=2.0),
        Figure("p99.9", "ms", more_is_better=False),
    ],
    _ask_end_to_end,
)

MIXED = Question(
    "mixed",
    "One Java producer, one Java consumer and round trips at once",
    [
        Figure("records/s written", "records/s"),
        Figure("records/s read", "records/s"),
        Figure("round trip p99", "ms", more_is_better=False),
    ],
    _ask_mixed,
)


