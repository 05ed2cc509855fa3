"""A partition moves to a broker with another disk, while a producer goes on: time and pause.

    python -m bench.host_moves [--megabytes 400] [--rounds 3]

Two brokers of each kind, in turn; one partition of records of 1 kB; an idempotent producer sends a
record every 5 ms with acks=all. The time is from the request until no reassignment is
listed; the pause is the longest time from sending a record to its acknowledgement.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from base64 import urlsafe_b64encode
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.asking import Connection
from bench.clients import send
from bench.processes import KafkaProcess, OdradekProcess, lacks_kafka
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

Broker = OdradekProcess | KafkaProcess

_TOPIC, _FROM, _TO = "moving", 1, 2
_VALUE_BYTES = 1_000
_PACE_S = 0.005
_LOOK_S = 0.02
_PATIENCE_S = 300.0


def odradeks(folder: Path) -> list[Broker]:
    """Return two brokers that share a catalog."""
    catalog = {"odradek.catalog.url": f"sqlite://{folder / 'catalog.db'}"}
    return [
        OdradekProcess(folder / f"odradek-{one}", {**catalog, "node.id": str(one)})
        for one in (_FROM, _TO)
    ]


def kafkas(folder: Path) -> list[Broker]:
    """Return two brokers of Apache Kafka, of which the first is the controller, too."""
    cluster_id = urlsafe_b64encode(b"k" + os.urandom(15)).decode().rstrip("=")
    first = KafkaProcess(folder / "kafka-1", cluster_id=cluster_id)
    second = KafkaProcess(folder / "kafka-2", cluster_id=cluster_id)
    listener = f"PLAINTEXT://127.0.0.1:{second.port}"
    second.settings = {
        "process.roles": "broker",
        "node.id": str(_TO),
        "controller.quorum.voters": f"1@127.0.0.1:{first.controller_port}",
        "listeners": listener,
        "advertised.listeners": listener,
    }
    return [first, second]


def fill(broker: Broker, megabytes: int) -> int:
    """Create the topic and write to it; return the number of records."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    while len(admin.list_topics(timeout=10).brokers) < 2:
        time.sleep(_LOOK_S)
    topic = NewTopic(_TOPIC, 1, replica_assignment=[[_FROM]])
    admin.create_topics([topic])[_TOPIC].result(30)
    settings = {"bootstrap.servers": broker.bootstrap, "acks": "1", "linger.ms": 5}
    producer = Producer({**settings, "batch.size": 1 << 18})
    value, count = os.urandom(_VALUE_BYTES), megabytes * 1_000
    for number in range(count):
        send(producer, _TOPIC, value)
        if number % 1_000 == 0:
            producer.poll(0)
    assert not producer.flush(60)
    return count


def move(broker: Broker, connection: Connection) -> tuple[float, float, int]:
    """Move the partition; return the time, the pause, and the number of records sent."""
    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True}
    producer = Producer({**settings, "linger.ms": 0})
    pauses: list[float] = []

    def send() -> None:
        sent_s = time.monotonic()

        def acknowledged(error: object, _: object) -> None:
            assert error is None, error
            pauses.append(time.monotonic() - sent_s)

        producer.produce(_TOPIC, b"x" * 100, on_delivery=acknowledged)
        producer.poll(0)

    for _ in range(100):
        send()
        time.sleep(_PACE_S)
    partition = ReassignablePartition(partition_index=0, replicas=[_TO])
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=_TOPIC, partitions=[partition])]
    )
    begun_s = looked_s = time.monotonic()
    answer = connection.ask(request, 0, AlterPartitionReassignmentsResponse)
    assert not answer.responses[0].partitions[0].error_code, answer
    listing = ListPartitionReassignmentsRequest(topics=None)
    while time.monotonic() - begun_s < _PATIENCE_S:
        send()
        time.sleep(_PACE_S)
        if time.monotonic() - looked_s > _LOOK_S:
            looked_s = time.monotonic()
            if not connection.ask(listing, 0, ListPartitionReassignmentsResponse).topics:
                break
    took_s = time.monotonic() - begun_s
    for _ in range(100):
        send()
        time.sleep(_PACE_S)
    assert not producer.flush(60)
    return took_s, max(pauses), len(pauses)


def check(broker: Broker, count: int) -> None:
    """Check that the new leader has all records."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "check"})
    low, high = consumer.get_watermark_offsets(TopicPartition(_TOPIC, 0), 30)
    assert (low, high) == (0, count), (low, high, count)
    consumer.close()


def main() -> None:
    """Print a line for each round and kind."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    kinds = {"odradek": odradeks} if lacks_kafka() else {"odradek": odradeks, "kafka": kafkas}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name, make in kinds.items():
            with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
                brokers = make(Path(folder))
                for one in brokers:
                    stack.callback(one.stop)
                    one.start()
                count = fill(brokers[0], options.megabytes)
                with Connection(brokers[0].port) as connection:
                    took_s, pause_s, sent = move(brokers[0], connection)
                check(brokers[1], count + sent)
            times[name].append(took_s)
            speed = options.megabytes / took_s
            print(f"{name}: {took_s:.2f} s, {speed:.0f} MB/s, pause {pause_s * 1000:.0f} ms")
    if "kafka" in times:
        ratio = statistics.median(times["kafka"]) / statistics.median(times["odradek"])
        print(f"Kafka's time by Odradek's: {ratio:.2f}")


if __name__ == "__main__":
    main()
