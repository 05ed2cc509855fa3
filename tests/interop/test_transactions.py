"""Clients of several languages write in transactions: commit, abort, fencing, timeouts, copies.

Run by `make interop`. INTEROP_BROKER=kafka runs it against Apache Kafka instead.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import KafkaProcess, OdradekProcess
from tests.interop.conftest import KIND
from tests.interop.programs import TRANSACTORS, Process, Program, RefusedByClient
from tests.support.waiting import wait_until

Broker = OdradekProcess | KafkaProcess
PARTITIONS = 2
COUNT = 400
TIMEOUT_S = 60.0

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(params=TRANSACTORS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    found: Program = request.param
    absent = found.why_absent()
    if absent:
        pytest.skip(absent)
    return found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "transaction.state.log.num.partitions": "3",
        "offsets.topic.num.partitions": "3",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    }
    running = KIND(tmp_path_factory.mktemp("transactions"), settings)
    try:
        running.start()
        yield running
    finally:
        running.stop()
    if isinstance(running, OdradekProcess):
        for sign in ("ERROR", "Traceback", "never retrieved"):
            assert sign not in running.log_text(), running.log_text()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    create(broker, name)
    return name


def test_committed_records_are_read_and_aborted_ones_are_not(
    broker: Broker, program: Program, topic: str
) -> None:
    with program.transactional(broker.bootstrap, topic) as producer:
        for number, end in enumerate(("commit", "abort", "commit", "commit", "abort")):
            producer.ask("begin")
            for partition in range(PARTITIONS):
                producer.ask("send", topic, partition, "key", f"{end} {number}")
            producer.ask(end)
    ends = ["commit 0", "commit 2", "commit 3"]
    assert read(broker, topic, "read_committed", len(ends) * PARTITIONS) == dict.fromkeys(
        range(PARTITIONS), ends
    )
    assert len(read(broker, topic, "read_uncommitted", 5 * PARTITIONS)[0]) == 5


def test_a_second_producer_of_the_id_fences_the_first_and_aborts_what_it_began(
    broker: Broker, program: Program, topic: str
) -> None:
    with program.transactional(broker.bootstrap, topic) as first:
        first.ask("begin")
        first.ask("send", topic, 0, "key", "of the first")
        with program.transactional(broker.bootstrap, topic) as second:
            second.ask("begin")
            second.ask("send", topic, 0, "key", "of the second")
            second.ask("commit")
            with pytest.raises(RefusedByClient, match=r"(?i)fence|epoch"):
                first.ask("send", topic, 0, "key", "too late")
                first.ask("commit")
    assert read(broker, topic, "read_committed", 1) == {0: ["of the second"]}


def test_a_transaction_that_takes_too_long_is_aborted(
    broker: Broker, program: Program, topic: str
) -> None:
    with program.transactional(broker.bootstrap, topic, timeout_ms=1_000) as slow:
        slow.ask("begin")
        slow.ask("send", topic, 0, "key", "too slow")
        plain = Producer({"bootstrap.servers": broker.bootstrap})
        plain.produce(topic, "after it", partition=0)
        plain.flush(TIMEOUT_S)
        # Readable once the transaction before it is over, which nobody but the broker ends.
        assert read(broker, topic, "read_committed", 1) == {0: ["after it"]}
        with pytest.raises(RefusedByClient):
            slow.ask("send", topic, 0, "key", "too late")
            slow.ask("commit")


def test_records_and_offsets_are_copied_exactly_once_though_the_copier_is_killed(
    broker: Broker, program: Program, topic: str
) -> None:
    target, group = f"{topic}-copy", f"{topic}-group"
    create(broker, target)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(COUNT):
        producer.produce(topic, str(number), "key", number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0

    def copied(process: Process) -> int:
        return sum(line["copied"] for line in process.lines())

    with program.copier(broker.bootstrap, group, topic, target, topic) as first:
        wait_until(lambda: copied(first) >= COUNT // 4, shown=first.errors)
    with program.copier(broker.bootstrap, group, topic, target, topic) as second:
        seen = read(broker, target, "read_committed", COUNT)
        wanted = {
            p: [str(n) for n in range(COUNT) if n % PARTITIONS == p] for p in range(PARTITIONS)
        }
        assert seen == wanted, second.errors()
        ends = dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)
        wait_until(lambda: committed(broker, group, topic) == ends, shown=second.errors)


def create(broker: Broker, topic: str) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(TIMEOUT_S)


def read(broker: Broker, topic: str, isolation: str, count: int) -> dict[int, list[str]]:
    """Read so many records, and look whether there are more; values by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reading",
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    seen: dict[int, list[str]] = defaultdict(list)
    found, deadline = 0, time.monotonic() + TIMEOUT_S
    while found < count and time.monotonic() < deadline:
        found += take(consumer, seen, 0.2)
    take(consumer, seen, 1.0)  # what must not be there had time to come
    consumer.close()
    return dict(seen)


def take(consumer: Consumer, seen: dict[int, list[str]], timeout_s: float) -> int:
    """Take what comes; return how much."""
    messages = consumer.consume(1_000, timeout_s)
    for message in messages:
        assert message.error() is None, message.error()
        partition, value = message.partition(), message.value()
        assert partition is not None and value is not None
        seen[partition].append(value.decode())
    return len(messages)


def committed(broker: Broker, group: str, topic: str) -> dict[int, int]:
    """Return a group's offsets."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, p) for p in range(PARTITIONS)]
    )
    result = admin.list_consumer_group_offsets([wanted], require_stable=True)[group].result()
    return {one.partition: one.offset for one in result.topic_partitions}
