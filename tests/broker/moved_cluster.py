"""A cluster of Apache Kafka with something of everything in it, and what a client sees of it."""

from __future__ import annotations

import hashlib
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from confluent_kafka.admin import ResourceType as ClientResourceType

from odradek.broker.metadata.store import ResourceType
from odradek.protocol.compiler import decode
from odradek.protocol.frames import encode_request, read_response_header
from odradek.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from tests.support.requests import altering

T = TypeVar("T")

PATIENCE_S = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OFFSETS = "__consumer_offsets"
# Segments that roll at once and are cleaned at once; nothing that time alone would change.
CLEANED = {
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "86400000",
}
KAFKA_SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "orders": (3, {}),
    "kept": (1, {"retention.ms": "-1", "segment.bytes": "1048576", "max.message.bytes": "99999"}),
    "compacted": (2, {"cleanup.policy": "compact", **CLEANED}),
    "both": (1, {"cleanup.policy": "compact,delete", "retention.ms": "604800000", **CLEANED}),
    "transfers": (2, {"message.timestamp.type": "LogAppendTime"}),
    "empty": (4, {}),
}

SeenRecord = tuple[int, tuple[int, int], bytes | None, bytes | None, tuple[Any, ...]]
Place = tuple[str, int]


@dataclass(frozen=True)
class Seen:
    """All that a client can tell of a cluster."""

    topics: Mapping[str, tuple[str, int]]
    configs: Mapping[str, Mapping[str, str]]
    broker_configs: Mapping[str, str]
    ends: Mapping[Place, tuple[int, int]]
    records: Mapping[Place, list[SeenRecord]]
    committed: Mapping[str, Mapping[Place, tuple[int, str]]]


def fill(bootstrap: str, records: int, node_id: int) -> None:
    """Create topics of every kind, and write, delete and commit in each of the ways there are."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics(
        [NewTopic(name, count, 1, config=config) for name, (count, config) in TOPICS.items()]
    )
    for future in made.values():
        future.result()
    alter(bootstrap, ResourceType.BROKER, "", {"log.cleaner.threads": "2"})
    alter(bootstrap, ResourceType.BROKER, str(node_id), {"log.cleaner.io.buffer.size": "600000"})
    for codec in CODECS:
        _produce(bootstrap, codec, records)
    _transact(bootstrap, records)
    for group in ("readers", "others"):
        commit(bootstrap, group, [("orders", 0, 7), ("orders", 1, 3)])
    alter(bootstrap, ResourceType.TOPIC, OFFSETS, CLEANED)
    for offset in range(1, 30):
        commit(bootstrap, "readers", [("orders", 0, offset), ("compacted", 1, offset)])


def _produce(bootstrap: str, codec: str, records: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": codec != "none",
            "linger.ms": 20,
            "log_level": 1,
        }
    )
    for number in range(records):
        key = f"key-{number % 17}".encode()
        value = None if number % 11 == 5 else f"{codec} {number} ".encode() * 5
        headers = [("codec", codec.encode()), ("none", None)] if number % 3 == 0 else []
        for topic, (partitions, _) in TOPICS.items():
            if topic not in ("transfers", "empty"):
                producer.produce(
                    topic, value, key, number % partitions, timestamp=now_ms() - 60_000,
                    headers=headers,
                )  # fmt: skip
        if number % 50 == 49:
            producer.flush(PATIENCE_S)
            time.sleep(0.002)  # so that timestamps differ
    assert producer.flush(PATIENCE_S) == 0


def transactional(bootstrap: str, name: str) -> Producer:
    """Return a producer with a transactional id, ready to begin."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    return producer


def _transact(bootstrap: str, records: int) -> None:
    """Commit and abort by turns, records and offsets."""
    producer = transactional(bootstrap, "teller")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tellers"})
    for number in range(6):
        commits = number % 3 != 2  # the last one is aborted
        producer.begin_transaction()
        for at in range(max(1, records // 10)):
            word = b"committed" if commits else b"aborted"
            producer.produce("transfers", word, f"{number}.{at}".encode(), at % 2)
        place = TopicPartition("orders", 0, 100 + number)
        producer.send_offsets_to_transaction(
            [place], consumer.consumer_group_metadata(), PATIENCE_S
        )
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    consumer.close()


def alter(bootstrap: str, kind: ResourceType, name: str, settings: Mapping[str, str]) -> None:
    """Set single settings of a resource; the clients' own calls refuse "" for all brokers."""
    request = altering(name, settings, kind)
    response = ask(bootstrap, request, IncrementalAlterConfigsResponse, version=1)
    assert [one.error_code for one in response.responses] == [0], response


def ask(bootstrap: str, request: Any, answer: type[T], version: int) -> T:
    """Send one request over a connection of its own; return the response."""
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(encode_request(request, version, 0, "moved"))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        frame = memoryview(stream.read(size))
        _, position = read_response_header(frame, answer, version)
        return decode(answer, version, frame, position)


def commit(bootstrap: str, group: str, offsets: list[tuple[str, int, int]]) -> None:
    """Commit offsets of a group as one that assigns itself partitions."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings)
    places = [TopicPartition(t, p, o, metadata=f"note {o}") for t, p, o in offsets]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def see(bootstrap: str, node_id: int, isolation: str = "read_uncommitted") -> Seen:
    """Ask for everything, as a client does."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = sorted(admin.list_topics(timeout=PATIENCE_S).topics)
    described = admin.describe_topics(TopicCollection(names))
    found = {name: future.result() for name, future in described.items()}
    topics = {name: (str(one.topic_id), len(one.partitions)) for name, one in found.items()}
    of_topics = _configs(admin, [ConfigResource(ClientResourceType.TOPIC, name) for name in names])
    own = {
        name: {key: one.value for key, one in entries.items() if one.source == 1}
        for name, entries in of_topics.items()
    }
    broker = _configs(admin, [ConfigResource(ClientResourceType.BROKER, str(node_id))])
    dynamic = {
        key: one.value for key, one in broker[str(node_id)].items() if one.source in (2, 3)
    }
    places = [(name, number) for name, (_, count) in topics.items() for number in range(count)]
    consumer = reader(bootstrap, isolation)
    ends = {
        place: consumer.get_watermark_offsets(TopicPartition(*place), PATIENCE_S)
        for place in places
    }
    # What the broker itself writes at its own times is not compared.
    read = {place: ends[place][0] for place in places if place[0] != "__transaction_state"}
    records = read_all(consumer, read)
    consumer.close()
    committed = {group: _committed(admin, group) for group in ("readers", "others", "tellers")}
    return Seen(topics, own, dynamic, ends, records, committed)


def _configs(admin: AdminClient, resources: list[ConfigResource]) -> dict[str, dict[str, Any]]:
    return {
        resource.name: future.result()
        for resource, future in admin.describe_configs(resources).items()
    }


def _committed(admin: AdminClient, group: str) -> dict[Place, tuple[int, str]]:
    wanted = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(wanted)[group].result()
    return {
        (one.topic, one.partition): (one.offset, one.metadata or "")
        for one in answer.topic_partitions
    }


def reader(bootstrap: str, isolation: str = "read_uncommitted") -> Consumer:
    """Return a consumer that says where partitions end."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "isolation.level": isolation,
        }
    )


def read_all(consumer: Consumer, starts: Mapping[Place, int]) -> dict[Place, list[SeenRecord]]:
    """Read partitions from their starts to their ends."""
    records: dict[Place, list[SeenRecord]] = {place: [] for place in starts}
    unread = set(starts)
    consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
    deadline = time.monotonic() + PATIENCE_S
    while unread:
        assert time.monotonic() < deadline, f"did not end: {unread}"
        for message in consumer.consume(500, 0.1):
            place = message.topic(), message.partition()
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                unread.discard(place)
                continue
            records[place].append((
                message.offset(), message.timestamp(), message.key(), message.value(),
                tuple(message.headers() or ()),
            ))  # fmt: skip
    return records


def cleaned_to(data: Path, topic: str) -> int:
    """Return the largest offset that a cleaner has cleaned a topic up to, 0 for none."""
    checkpoint = data / "cleaner-offset-checkpoint"  # is made by the first cleaning
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return max((int(line.split()[2]) for line in lines if line.startswith(f"{topic} ")), default=0)


def digests(data: Path) -> dict[str, str]:
    """Return a digest of every file below a directory."""
    return {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data.rglob("*"))
        if path.is_file()
    }


def now_ms() -> int:
    """Return the time as records have it."""
    return int(time.time() * 1000)
