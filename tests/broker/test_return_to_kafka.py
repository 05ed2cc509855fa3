"""Partition directories that Odradek wrote, put in the place of a Kafka's: Kafka serves them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import KafkaProcess
from odradek.broker.adoption.adopt import Source
from odradek.cli.adopt import adopt
from odradek.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.broker.moved_cluster import (
    CLEANED,
    CODECS,
    PATIENCE_S,
    Place,
    SeenRecord,
    ask,
    cleaned_to,
    read_all,
    reader,
)
from tests.support.forking import ForkedOdradek
from tests.support.waiting import wait_until

TOPICS = {
    "orders": {"segment.bytes": "1048576"},
    "trimmed": {},
    "compacted": {"cleanup.policy": "compact", **CLEANED},
}
# Lines of these tell of single partitions, and go along with them.
CHECKPOINTS = (
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    # Without it Kafka begins with a high watermark below the start of a trimmed log, and warns.
    "replication-offset-checkpoint",
)

pytestmark = pytest.mark.timeout(600)


@dataclass
class Return:
    """What was Odradek's and is Kafka's now."""

    kafka: KafkaProcess
    producer: Producer
    before: dict[Place, list[SeenRecord]]
    ends: dict[Place, tuple[int, int]]
    epoch: int


def move_to_kafka(odradek: Path, kafka: Path) -> None:
    """Do by hand what docs/adopting.md tells, both brokers being stopped."""
    for name in TOPICS:
        source, target = odradek / f"{name}-0", kafka / f"{name}-0"
        identity = (target / "partition.metadata").read_bytes()  # Kafka's own id of the topic
        shutil.rmtree(target)
        shutil.copytree(source, target)
        (target / "partition.metadata").write_bytes(identity)
    for name in CHECKPOINTS:
        lines = [
            line
            for data, ours in ((odradek, True), (kafka, False))
            for line in entries(data / name)
            if (line.split()[0] in TOPICS) == ours
        ]
        (kafka / name).write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def latest_epoch(data: Path) -> int:
    """Return the leader epoch of the topics, which were started and stopped together."""
    lines = (data / "orders-0" / "leader-epoch-checkpoint").read_text().splitlines()
    return int(lines[-1].split()[0])


def entries(checkpoint: Path) -> list[str]:
    return checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("short", marks=pytest.mark.kafka),
        pytest.param("full", marks=[pytest.mark.kafka, pytest.mark.interop]),
    ],
)
def back(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Return]:
    """Fill an Odradek, hand its partitions to a Kafka that has the topics, and start that."""
    folder = tmp_path_factory.mktemp(request.param)
    settings = {"log.cleaner.backoff.ms": "200"}
    odradek = ForkedOdradek(folder / "odradek", settings)
    kafka = KafkaProcess(folder / "kafka", {"log.cleaner.enable": "false"})
    full = request.param == "full"
    try:
        odradek.start()
        create(odradek.bootstrap)
        for _ in range(5):  # so that Kafka, which counts from 0, does not give out the same
            ask(odradek.bootstrap, InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=0, producer_id=-1, producer_epoch=-1
            ), InitProducerIdResponse, version=4)  # fmt: skip
        for codec in CODECS:
            write(odradek.bootstrap, codec, 3_000 if full else 30)
        for _ in range(4 if full else 1):  # each raises the leader epoch
            odradek.kill()
            odradek.start()
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{kafka.port},{odradek.bootstrap}",
                             "enable.idempotence": True, "log_level": 1})  # fmt: skip
        assert produce(producer, "before")
        write(odradek.bootstrap, "none", 30)
        end = cleaned_to(odradek.data, "compacted")
        write(odradek.bootstrap, "none", 30)
        wait_until(lambda: cleaned_to(odradek.data, "compacted") > end, "compacted is cleaned")
        admin = AdminClient({"bootstrap.servers": odradek.bootstrap})
        for future in admin.delete_records([TopicPartition("trimmed", 0, 17)]).values():
            future.result()
        odradek.stop()  # and once more without its cleaner, to be seen as it is handed over
        odradek.settings = {"log.cleaner.enable": "false"}
        odradek.start()
        before, ends = see(odradek.bootstrap)
        odradek.stop()
        kafka.start()
        create(kafka.bootstrap)
        kafka.stop()
        epoch = latest_epoch(odradek.data)
        while latest_epoch(kafka.data) < epoch:  # each start raises it
            kafka.start()
            kafka.stop()
        move_to_kafka(odradek.data, kafka.data)
        kafka.start()
        yield Return(kafka, producer, before, ends, epoch)
    finally:
        odradek.stop()
        kafka.stop()


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result()


def write(bootstrap: str, codec: str, records: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "enable.idempotence": codec != "gzip",
            "linger.ms": 5,
            "log_level": 1,
        }
    )
    for number in range(records):
        key = f"key-{number % 13}".encode()
        value = None if number % 7 == 3 else f"{codec} {number} ".encode() * 20
        for topic in TOPICS:
            producer.produce(topic, value, key, 0, headers=[("codec", codec.encode())])
        if number % 10 == 9:
            assert producer.flush(PATIENCE_S) == 0
    assert producer.flush(PATIENCE_S) == 0


def produce(producer: Producer, word: str) -> list[int]:
    """Produce a few records; return their offsets."""
    offsets: list[int] = []

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        offsets.append(message.offset())  # type: ignore[attr-defined]

    for number in range(5):
        producer.produce("orders", f"{word} {number}", "live", 0, on_delivery=delivered)
        assert producer.flush(PATIENCE_S) == 0
    return offsets


def complaints(kafka: KafkaProcess) -> list[str]:
    """Return what Kafka wrote of the partitions that is more than that it loads them."""
    signs = re.compile(r"\b(WARN|ERROR|FATAL)\b|corrupt|recovering|truncat", re.IGNORECASE)
    lines = [line for line in kafka.log_text().splitlines() if signs.search(line)]
    return [line for line in lines if any(f"{name}-0" in line for name in TOPICS)]


def see(bootstrap: str) -> tuple[dict[Place, list[SeenRecord]], dict[Place, tuple[int, int]]]:
    consumer = reader(bootstrap)
    ends = {
        (name, 0): consumer.get_watermark_offsets(TopicPartition(name, 0), PATIENCE_S)
        for name in TOPICS
    }
    records = read_all(consumer, {place: start for place, (start, _) in ends.items()})
    consumer.close()
    return records, ends


def test_kafka_has_nothing_to_complain_of(back: Return) -> None:
    assert complaints(back.kafka) == []


def test_kafka_serves_what_odradek_did(back: Return) -> None:
    records, ends = see(back.kafka.bootstrap)
    assert ends["trimmed", 0][0] == 17
    for place, end in back.ends.items():
        assert ends[place][0] == end[0]
        # Kafka may have been written to by the test below.
        assert records[place][: len(back.before[place])] == back.before[place], place
    compacted = back.before["compacted", 0]
    assert len(compacted) < back.ends["compacted", 0][1] - back.ends["compacted", 0][0]
    assert any(value is None for _, _, _, value, _ in compacted)


def test_an_idempotent_producer_goes_on(back: Return) -> None:
    end = back.ends["orders", 0][1]
    offsets = produce(back.producer, "after")
    assert offsets == list(range(end, end + 5))
    records, _ = see(back.kafka.bootstrap)
    live = [value for _, _, key, value, _ in records["orders", 0] if key == b"live"]
    assert live == [f"{word} {n}".encode() for word in ("before", "after") for n in range(5)]


def test_new_producers_append_after_it(back: Return) -> None:
    _, before = see(back.kafka.bootstrap)
    write(back.kafka.bootstrap, "zstd", 20)
    _, after = see(back.kafka.bootstrap)
    assert [end - before[place][1] for place, (_, end) in after.items()] == [20] * len(TOPICS)


def test_the_leader_epoch_never_falls(back: Return) -> None:
    wait_until(lambda: latest_epoch(back.kafka.data) > back.epoch, "Kafka leads the partition")


@pytest.mark.kafka
@pytest.mark.interop
def test_kafka_gets_adopted_data_back(tmp_path: Path) -> None:
    kafka = KafkaProcess(tmp_path)
    odradek = ForkedOdradek(tmp_path, port=kafka.port)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True,
                         "log_level": 1})  # fmt: skip
    offsets: list[int] = []
    try:
        kafka.start()
        create(kafka.bootstrap)
        write(kafka.bootstrap, "lz4", 50)
        offsets += produce(producer, "kafka")
        kafka.stop()
        assert adopt(Source((kafka.data,)), force=False, dry_run=False) == 0
        odradek.start()
        for _ in range(3):  # the leader epoch gets ahead of the one that Kafka knows of
            offsets += produce(producer, "odradek")
            write(odradek.bootstrap, "zstd", 50)
            odradek.kill()
            odradek.start()
        before, ends = see(odradek.bootstrap)
        odradek.stop()
        kafka.start()
        assert see(kafka.bootstrap) == (before, ends)
        offsets += produce(producer, "kafka again")
        write(kafka.bootstrap, "lz4", 50)  # of a new producer, whose id nobody had
        after, _ = see(kafka.bootstrap)
        for place, records in before.items():
            assert after[place][: len(records)] == records
        live = [offset for offset, _, key, _, _ in after["orders", 0] if key == b"live"]
        assert live == offsets
    finally:
        kafka.stop()
        odradek.stop()
