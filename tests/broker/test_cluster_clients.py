"""Real clients on three broker processes with one catalog, of which some are killed."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import OdradekProcess, kafka_tool, lacks_kafka
from odradek.protocol.batches import iterate_batches
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.kafka_peer import Peer, response_to
from tests.broker.live import batch
from tests.cli.commands import Commands
from tests.support.forking import ForkedOdradek
from tests.support.requests import fetching, producing
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS, RECORDS, AT_ONCE = 6, 240, 40
WAIT_S = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "100",
}


@contextmanager
def running(
    folder: Path, url: str, settings: Mapping[str, str] = SETTINGS
) -> Iterator[list[OdradekProcess]]:
    """Run three brokers. With the usual settings, the lease of a killed one ends soon."""
    with ExitStack() as stack:
        brokers = []
        for number in (1, 2, 3):
            own = {**settings, "node.id": str(number), "odradek.catalog.url": url}
            one = ForkedOdradek(folder / str(number), own)
            one.start()
            stack.callback(lambda one=one: one.process and one.stop())  # type: ignore[misc]
            brokers.append(one)
        yield brokers


def addresses(brokers: list[OdradekProcess]) -> str:
    return ",".join(one.bootstrap for one in brokers)


def create(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names])
    for one in made.values():
        one.result(WAIT_S)


def fill(bootstrap: str, topic: str) -> None:
    """Write the numbers below RECORDS, in turn to all partitions."""
    plain = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        plain.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert not plain.flush(WAIT_S)


def consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )


def read_all(bootstrap: str, topic: str, count: int) -> list[int]:
    """Read committed records of a topic until there are so many."""
    reader = consumer(bootstrap, f"reader-of-{topic}")
    reader.subscribe([topic])
    found: list[int] = []

    def has_all() -> bool:
        for message in reader.consume(count, 0.2):
            if message.error() is None:
                found.append(int(message.value()))
        return len(found) >= count

    try:
        wait_until(has_all, "all records were read")
    finally:
        reader.close()
    return found


class Sender:
    """An idempotent producer that writes the numbers from 0 on, in turn to all partitions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._sent = 0
        self._failed: list[KafkaError] = []

    def send(self, timeout_s: float = 0) -> None:
        """Write some more numbers; wait for answers at most as long."""
        for number in range(self._sent, self._sent + AT_ONCE):
            self._producer.produce(
                self._topic,
                str(number).encode(),
                partition=number % PARTITIONS,
                on_delivery=lambda error, _: self._failed.append(error) if error else None,
            )
        self._sent += AT_ONCE
        self._producer.poll(timeout_s)

    def check(self) -> None:
        """Check that each number was acknowledged, and is there once."""
        assert not self._producer.flush(WAIT_S)
        assert not self._failed
        read = read_all(self._bootstrap, self._topic, self._sent)
        assert sorted(read) == list(range(self._sent))


def process(bootstrap: str, on_turn: Callable[[], None] = lambda: None) -> None:
    """Read records, write them to another topic in transactions, and check the outcome."""
    create(bootstrap, "in", "out")
    fill(bootstrap, "in")
    producers = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"writer-{one}"})
        for one in range(4)  # with coordinators at several brokers
    ]
    for one in producers:
        one.init_transactions(WAIT_S)
    source = consumer(bootstrap, "workers")
    source.subscribe(["in"])
    done = 0
    for turn in itertools.count():
        on_turn()
        found = [one for one in source.consume(AT_ONCE, 1.0) if one.error() is None]
        if not found:
            continue
        writer = producers[turn % len(producers)]
        writer.begin_transaction()
        for one in found:
            value = one.value()
            writer.produce("out", value, partition=int(value) % PARTITIONS)
        if turn % 3 == 1:
            writer.abort_transaction(WAIT_S)
            for one in reversed(found):  # the earliest of each partition comes last
                source.seek(TopicPartition("in", one.partition(), one.offset()))
            continue
        ends = {one.partition(): one.offset() + 1 for one in found}
        offsets = [TopicPartition("in", number, end) for number, end in ends.items()]
        group = source.consumer_group_metadata()
        writer.send_offsets_to_transaction(offsets, group, WAIT_S)
        writer.commit_transaction(WAIT_S)
        done += len(found)
        if done == RECORDS:
            break
    assert sorted(read_all(bootstrap, "out", RECORDS)) == list(range(RECORDS))

    def committed() -> list[int]:
        """Return the committed offsets; a coordinator may just have moved."""
        wanted = [TopicPartition("in", number) for number in range(PARTITIONS)]
        try:
            return [one.offset for one in source.committed(wanted, WAIT_S)]
        except KafkaException as error:
            assert error.args[0].code() == KafkaError.NOT_COORDINATOR
            return []

    assert wait_until(committed) == [RECORDS // PARTITIONS] * PARTITIONS
    source.close()


def test_records_are_read_processed_and_written_exactly_once_over_all_brokers(
    tmp_path: Path, catalog_url: str
) -> None:
    with running(tmp_path, catalog_url) as brokers:
        process(addresses(brokers))


def test_a_killed_broker_loses_nothing_and_nothing_comes_twice(
    tmp_path: Path, catalog_url: str
) -> None:
    """An idempotent producer goes on while each broker is killed and started again in turn."""
    with running(tmp_path, catalog_url) as brokers:
        bootstrap = addresses(brokers)
        create(bootstrap, "t")
        sender = Sender(bootstrap, "t")
        for victim in brokers:
            sender.send()
            victim.kill()
            sender.send()
            left = addresses([one for one in brokers if one.process])
            admin = AdminClient({"bootstrap.servers": left})

            def is_noticed(admin: AdminClient = admin) -> bool:
                return len(admin.list_topics(timeout=10).brokers) == len(brokers) - 1

            wait_until(is_noticed, "the others have closed the session")
            sender.send()
            victim.start()
        sender.check()


def stay_a_member(bootstrap: str, test: Connection) -> None:
    """Join a group, and commit each offset that comes; a process of its own.

    librdkafka's consumer may wait for good to leave a group beside brokers that came back, and a
    call into C that does not return stops pytest-timeout, too.
    """
    member = consumer(bootstrap, "g")
    member.subscribe(["t"])
    wait_until(lambda: member.poll(0.1) or member.assignment(), "it has joined")
    while True:
        offset = test.recv()

        def commits(offset: int = offset) -> bool:
            member.poll(0.1)
            try:
                wanted = [TopicPartition("t", number, offset) for number in range(PARTITIONS)]
                member.commit(offsets=wanted, asynchronous=False)
            except KafkaException:
                return False
            return True

        wait_until(commits, "it commits")
        wanted = [TopicPartition("t", number) for number in range(PARTITIONS)]
        test.send([one.offset for one in member.committed(wanted, WAIT_S)])


def test_a_group_survives_the_death_of_its_coordinator(tmp_path: Path, catalog_url: str) -> None:
    """A member commits after the death of each broker.

    It does so before the next one dies: a librdkafka that finds all of them gone begins with its
    first addresses again, and may then stay without a coordinator (once in 300 runs).
    """
    with running(tmp_path, catalog_url) as brokers:
        bootstrap = addresses(brokers)
        create(bootstrap, "t")
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        member = context.Process(target=stay_a_member, args=(bootstrap, there), daemon=True)
        member.start()
        try:
            for offset, victim in enumerate((None, *brokers), 7):
                if victim is not None:
                    victim.kill()
                    victim.start()
                here.send(offset)
                assert here.poll(2 * WAIT_S)
                assert here.recv() == [offset] * PARTITIONS
        finally:
            member.kill()
            member.join()


@pytest.mark.kafka
@pytest.mark.skipif(lacks_kafka(), reason="Kafka's jars are not there: `make kafka` fetches them")
def test_a_share_group_has_leaders_and_states_at_all_brokers(
    tmp_path: Path, catalog_url: str
) -> None:
    """Kafka's own consumer gets each record once."""
    with running(tmp_path, catalog_url) as brokers:
        bootstrap = addresses(brokers)
        create(bootstrap, "t")
        commands = Commands(brokers[2].bootstrap)
        setting = "share.auto.offset.reset=earliest"
        commands.shown("configs", "alter", "--group", "sharers", "--set", setting)
        fill(bootstrap, "t")
        read = kafka_tool(
            [
                "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
                "--bootstrap-server", bootstrap, "--topic", "t", "--group", "sharers",
                "--max-messages", str(RECORDS), "--timeout-ms", "60000",
            ],
        )  # fmt: skip
        assert sorted(map(int, read.stdout.split())) == list(range(RECORDS))

        def lags() -> list[str]:
            """Return the lag of each partition, wherever its leader is."""
            tool = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
            asked = ["--describe", "--offsets", "--group", "sharers"]
            shown = kafka_tool([tool, "--bootstrap-server", bootstrap, *asked]).stdout
            rows = [line.split() for line in shown.splitlines() if " t " in line]
            return [row[-1] for row in rows]

        wait_until(lambda: lags() == ["0"] * PARTITIONS)


def test_a_broker_that_was_stopped_beyond_its_lease_writes_nothing_under_its_old_epoch(
    tmp_path: Path,
) -> None:
    """Requests that it finds when it goes on were sent before it knows of the time between."""
    with running(tmp_path, f"sqlite://{tmp_path / 'catalog.db'}") as brokers:
        bootstrap = addresses(brokers)
        create(bootstrap, "t")
        by_leader = {1: 0, 2: 1, 3: 2}  # the partitions of new topics go round
        victim = brokers[1]
        assert victim.process is not None
        with Peer(victim.port) as before, Peer(brokers[0].port) as other:
            wait_until(lambda: not _produced(before, by_leader[2], b"first"))
            victim.process.send_signal(signal.SIGSTOP)
            late = producing("t", batch(b"late"), partition=by_leader[2])
            before.socket.sendall(encode_request(late, 9, 2, "a-client"))

            def is_closed_out() -> bool:
                asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
                (topic,) = other.ask(asked, 12).topics
                ids = {one.partition_index: one.leader_id for one in topic.partitions}
                return ids[by_leader[2]] == -1  # on a loaded machine another may be late, too

            wait_until(is_closed_out, "the others have closed its session")
            victim.process.send_signal(signal.SIGCONT)
            answer = response_to(late, 9, before.receive())
            ((answered,),) = (one.partition_responses for one in answer.responses)
            # It may have joined again by then.
            assert answered.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            wait_until(lambda: not _produced(before, by_leader[2], b"later"))
            asked = fetching("t", partition=by_leader[2])
            ((data,),) = (one.partitions for one in before.ask(asked, 12).responses)
            epochs = [one.leader_epoch for _, one in iterate_batches(data.records)]
            assert all(epoch > epochs[0] for epoch in epochs[1:])
            assert len(epochs) == 3 - bool(answered.error_code)


def _produced(peer: Peer, partition: int, value: bytes) -> int:
    """Append a record; return the error code."""
    answer = peer.ask(producing("t", batch(value), partition=partition), 9)
    ((one,),) = (topic.partition_responses for topic in answer.responses)
    return int(one.error_code)
