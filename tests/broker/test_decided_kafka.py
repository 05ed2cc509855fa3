"""Offsets that Kafka took in transactions, read from its __consumer_offsets as it does itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import KafkaProcess
from broker.decided import decided
from broker.groups.records import OffsetRecord, decode_record
from config.topic import TopicConfig
from storage.files import RealFileSystem
from storage.recovery import Checkpointed, LogIdentity, load_log

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

PARTITIONS = 4


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaProcess]:
    """A Kafka that a test may stop."""
    kafka = KafkaProcess(tmp_path, {"offsets.topic.num.partitions": "1"})
    kafka.start()
    yield kafka
    kafka.stop()


def test_offsets_of_transactions_count_as_in_kafka(own_kafka: KafkaProcess) -> None:
    settings = {"bootstrap.servers": own_kafka.bootstrap}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
    consumer = Consumer({**settings, "group.id": "g", "enable.auto.commit": False})
    partitions = [TopicPartition("t", at) for at in range(PARTITIONS)]
    producers = [_producer(own_kafka, number) for number in range(2)]
    is_open = [False, False]
    source = random.Random(4)
    for offset in range(1, 60):
        number, partition = source.randrange(3), source.randrange(PARTITIONS)
        target = [TopicPartition("t", partition, offset)]
        if number == 2:
            consumer.commit(offsets=target, asynchronous=False)
        elif is_open[number] and source.random() < 0.4:
            _end(producers[number], source.random() < 0.6)
            is_open[number] = False
        else:
            if not is_open[number]:
                producers[number].begin_transaction()
            is_open[number] = True
            group = consumer.consumer_group_metadata()
            producers[number].send_offsets_to_transaction(target, group, 30)
    for number in range(2):  # the second one stays open
        if not is_open[number]:
            producers[number].begin_transaction()
        group = consumer.consumer_group_metadata()
        target = [TopicPartition("t", number, 1_000 + number)]
        producers[number].send_offsets_to_transaction(target, group, 30)
    _end(producers[0], True)
    # Pending ones are left out, and make clients wait otherwise.
    known = {one.partition: one.offset for one in _committed(own_kafka, partitions)}
    consumer.close()
    own_kafka.stop()
    found = _offsets(own_kafka.data / "__consumer_offsets-0")
    assert found == known
    assert found[0] == 1_000


def _producer(kafka: KafkaProcess, number: int) -> Producer:
    made = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"p{number}"})
    made.init_transactions(30)
    return made


def _end(producer: Producer, commits: bool) -> None:
    if commits:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def _committed(kafka: KafkaProcess, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Ask for the group's offsets as they are, whatever is pending."""
    reader = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "g",
            "isolation.level": "read_uncommitted",
        }
    )
    found: list[TopicPartition] = reader.committed(partitions, 30)
    reader.close()
    return [one for one in found if one.offset >= 0]


def _offsets(directory: Path) -> dict[int, int]:
    """Read the group's offsets by partition from a log."""
    log = load_log(
        RealFileSystem(),
        directory,
        LogIdentity("__consumer_offsets", 0, bytes(16)),
        TopicConfig(),
        Checkpointed(1 << 62, 0, True),
        now_ms=0,
        random_source=random.Random(1),
    )
    found: dict[int, int] = {}
    for key, value in decided(log.batches(0), "log"):
        record = decode_record(key, value)
        if isinstance(record, OffsetRecord) and record.committed is not None:
            found[record.partition] = record.committed.offset
    return found
