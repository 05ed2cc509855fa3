"""The clients that load a broker: Kafka's own performance tools, and librdkafka."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.pairs import Broker
from bench.processes import OdradekProcess, kafka_tool

PATIENCE_S = 300.0
_WARM_UP_SHARE = 5
# For smaller loads the rate does not matter.
_WARM_UP_MIN = 100_000
_PRODUCED = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)
# By default librdkafka requests nothing for a second once its queue is full: the faster a broker,
# the sooner that happens.
_QUEUE_BACKOFF_MS = 5
_CONSUME_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Load:
    """The records that one ProducerPerformance writes."""

    records: int
    size_bytes: int = 100
    properties: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()

    def part(self, share: int) -> Load:
        """Return a smaller load of the same kind."""
        return replace(self, records=self.records // share)

    def scaled(self, scale: float) -> Load:
        """Return a load of the same kind for a scale, of a hundred records at least."""
        return replace(self, records=max(int(self.records * scale), 100))


# The settings behind the figures that Kafka's users quote.
_PRODUCER = {"acks": "1", "linger.ms": "5", "batch.size": "65536"}


def create_topic(
    broker: Broker, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Create a topic, and wait until it exists."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    wanted = NewTopic(topic, partitions, 1, config=dict(config or {}))
    admin.create_topics([wanted])[topic].result(60)


def send(
    producer: Producer, topic: str, value: bytes, key: bytes | None = None, timestamp_ms: int = 0
) -> None:
    """Give a producer a record, once there is room in its queue; the time is now without one."""
    while True:
        try:
            producer.produce(topic, value, key, timestamp=timestamp_ms)
            return
        except BufferError:
            producer.poll(0.1)


def clean_now(
    broker: OdradekProcess, topic: str, timeout_s: float = 3600.0
) -> list[dict[str, Any]]:
    """Have a broker clean a topic, at any dirty ratio; return the outcomes by partition."""
    token = (broker.data / "odradek-admin-token").read_text().strip()
    request = urllib.request.Request(
        f"{broker.http}/api/cleaner/run?{urllib.parse.urlencode({'topic': topic})}",
        method="POST",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        outcomes: list[dict[str, Any]] = json.load(answer)["outcomes"]
        return outcomes


def produce(broker: Broker, topic: str, load: Load) -> float:
    """Run ProducerPerformance to its end; return its records/s."""
    properties = {"bootstrap.servers": broker.bootstrap, **_PRODUCER, **load.properties}
    done = kafka_tool(
        ["org.apache.kafka.tools.ProducerPerformance", "--topic", topic]
        + ["--num-records", str(load.records), "--record-size", str(load.size_bytes)]
        + ["--throughput", "-1", *load.arguments]
        + ["--producer-props", *(f"{key}={value}" for key, value in properties.items())],
        timeout_s=PATIENCE_S,
        flags=(),
    )
    sent, rate = _PRODUCED.findall(done.stdout)[-1]
    assert int(sent) == load.records, done.stdout + done.stderr
    return float(rate)


def produce_warm(broker: Broker, topic: str, load: Load) -> float:
    """Return the records/s of a load after a smaller one of its kind."""
    if load.records >= _WARM_UP_MIN:
        produce(broker, topic, load.part(_WARM_UP_SHARE))
    return produce(broker, topic, load)


def consume(
    broker: Broker, topic: str, records: int, properties: Mapping[str, str] | None = None
) -> float:
    """Run ConsumerPerformance over a topic; return its records/s from the first assignment on."""
    group = f"consumer-{time.monotonic_ns()}"
    settings = {"bootstrap.servers": broker.bootstrap, **(properties or {})}
    address = settings.pop("bootstrap.servers")
    given = [f"{key}={value}" for key, value in settings.items()]
    done = kafka_tool(
        ["org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", address]
        + ["--topic", topic, "--num-records", str(records), "--group", group]
        + ["--timeout", "60000", "--hide-header"]
        + [part for one in given for part in ("--command-property", one)],
        timeout_s=PATIENCE_S,
        flags=(),
    )
    # start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec,
    # rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
    fields = done.stdout.strip().splitlines()[-1].split(", ")
    assert int(fields[4]) >= records, done.stdout + done.stderr
    return float(fields[9])


def librdkafka_consume(
    broker: Broker,
    topic: str,
    records: int,
    properties: Mapping[str, str] | None = None,
    offset: int = 0,
) -> float:
    """Read a number of records of partition 0 with librdkafka; return the records/s.

    The time counts from the first record on: until then the client connects.
    """
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "none", "log_level": 0}
        | {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
        | {"fetch.queue.backoff.ms": _QUEUE_BACKOFF_MS}
        | dict(properties or {})
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    try:
        count = len(consumer.consume(1, 60))
        started_s, first = time.perf_counter(), count
        while count < records:
            found = consumer.consume(min(_CONSUME_BATCH, records - count), 60)
            assert found, f"{count} of {records} records came"
            count += len(found)
        return (count - first) / (time.perf_counter() - started_s)
    finally:
        consumer.close()


def librdkafka_produce(broker: Broker, topic: str, records: int, producers: int) -> float:
    """Write records of 100 B with several producers in turn; return the records/s of all."""
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0, "acks": 1, "linger.ms": 5}
    made = [Producer(settings) for _ in range(producers)]
    value = bytes(100)
    for one in made:  # so that each is connected and knows the partitions' leaders
        one.produce(topic, value)
        assert one.flush(60) == 0
    started_s = time.perf_counter()
    for at in range(records):
        one = made[at % producers]
        while True:
            try:
                one.produce(topic, value)
                break
            except BufferError:
                one.poll(0.1)
        if at % 1_000 < producers:
            one.poll(0)
    for one in made:
        assert one.flush(60) == 0, "records were not acknowledged"
    return records / (time.perf_counter() - started_s)
