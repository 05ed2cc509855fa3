"""Offsets that Kafka took in transactions, read from its __consumer_offsets as it does itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import KafkaProcess
from odradek.broker.coordination.internal_log import stored
from odradek.config.topic import TopicConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from odradek.storage.readable_log import LogIdentity
from odradek.storage.real_files import RealFileSystem
from odradek.storage.recovery import Checkpointed, load_log
from tests.broker.group_fakes import Bench
from tests.differential.wire import Peer
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

PARTITIONS = 4
WANTED = OffsetFetchRequestGroup(
    group_id="g",
    topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[*range(PARTITIONS)])],
)

Fetched = dict[int, tuple[int, int]]  # error and offset by partition


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
    # Kafka answers before the markers are written.
    wait_until(
        lambda: _ask(own_kafka, require_stable=False)[0] == (0, 1_000),
        "the last transaction has ended",
    )
    known = {stable: _ask(own_kafka, require_stable=stable) for stable in (False, True)}
    consumer.close()
    own_kafka.stop()
    directory = own_kafka.data / "__consumer_offsets-0"
    found = {stable: asyncio.run(_replay(directory, require_stable=stable)) for stable in known}
    assert found == known
    assert known[False][0] == (0, 1_000)
    assert known[True][1] == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)


def _producer(kafka: KafkaProcess, number: int) -> Producer:
    made = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"p{number}"})
    made.init_transactions(30)
    return made


def _end(producer: Producer, commits: bool) -> None:
    if commits:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def _ask(kafka: KafkaProcess, *, require_stable: bool) -> Fetched:
    peer = Peer(kafka.port)
    request = OffsetFetchRequest(topics=None, groups=[WANTED], require_stable=require_stable)
    answer = peer.ask(request, 8)
    peer.close()
    return _by_partition(answer.groups[0])


async def _replay(directory: Path, *, require_stable: bool) -> Fetched:
    """Have a coordinator replay a log, and ask it."""
    log = load_log(
        RealFileSystem(),
        directory,
        LogIdentity("__consumer_offsets", 0, bytes(16)),
        TopicConfig(),
        Checkpointed(1 << 62, 0, True),
        now_ms=0,
        random_source=random.Random(1),
    )
    bench = Bench()
    bench.log.records[0] = list(stored(log))
    await bench.groups.load()
    answer = bench.groups.fetch(WANTED, require_stable=require_stable)
    assert isinstance(answer, OffsetFetchResponseGroup)
    bench.groups.close()
    return _by_partition(answer)


def _by_partition(answer: OffsetFetchResponseGroup) -> Fetched:
    (topic,) = answer.topics
    return {p.partition_index: (p.error_code, p.committed_offset) for p in topic.partitions}
