"""A broker under load that is killed again and again (SIGKILL), and what must be true after it.

The process dies, not the machine: what was written is in the page cache, so that acks=1 counts
too. The clients live through all kills and send again what was not acknowledged:

    steady   three partitions, two idempotent producers
    quick    one producer with acks=1
    window   an idempotent producer, and retention by size
    table    an idempotent producer, and a cleaner that never rests
    brief-N  created and deleted all the time
    a group that commits one offset after the other
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import OdradekProcess
from tests.support.waiting import wait_until

SEGMENT_BYTES = 100_000
VALUE_BYTES = 60
# No more are in a segment.
SEGMENT_RECORDS = SEGMENT_BYTES // VALUE_BYTES
SETTINGS = {
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "20000",
}
TOPICS = [
    NewTopic("steady", 3, 1),
    NewTopic("quick", 1, 1),
    NewTopic("window", 1, 1, config={"retention.bytes": "120000"}),
    NewTopic("table", 2, 1, config={"cleanup.policy": "compact"}),
]
LIVES_S = (0.2, 1.2)
KEYS = 40
BATCH_BYTES = 8_000
PAUSE_EACH = 10
PAUSE_S = 0.02
# As many as a producer has on the way at most, twice. While no broker runs, more that wait cost
# time and show nothing.
WAITING_MAX = 1_000
FINISH_TIMEOUT_S = 60
GROUP = "committer"


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as a reader finds it."""

    partition: int
    offset: int
    key: str
    sender: str
    number: int


@dataclass
class Sender:
    """A producer that numbers its records; notes which were acknowledged, and where."""

    name: str
    bootstrap: str
    topic: str
    partition_count: int
    settings: dict[str, str]
    number_min: int = 101
    number: int = 0
    # The partition and the offset of each; no offset for a batch that was sent again, and whose
    # offset the broker had forgotten with its process, as Kafka does.
    acknowledged: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    failed: list[KafkaError] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Produce until told to stop, and some at least; wait until all is acknowledged."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": "1",
                # A batch has to fit into one of the small segments.
                "batch.size": str(BATCH_BYTES),
                "message.timeout.ms": "600000",
                "reconnect.backoff.max.ms": "200",
                "retry.backoff.ms": "50",
                "log_level": "0",
                **self.settings,
            }
        )
        source = random.Random(self.name)
        while not stop.is_set() or self.number < self.number_min:
            if len(producer) >= WAITING_MAX:
                producer.poll(0.05)
                continue
            self._produce(producer, f"k{source.randrange(KEYS)}")
            producer.poll(0)
            if self.number % PAUSE_EACH == 0:
                stop.wait(PAUSE_S)
        left = producer.flush(FINISH_TIMEOUT_S)
        assert left == 0, f"{self.name}: {left} records were never answered"

    def _produce(self, producer: Producer, key: str) -> None:
        number = self.number

        def delivered(error: KafkaError | None, message: object) -> None:
            if error is None:
                where = message.partition(), message.offset()  # type: ignore[attr-defined]
                self.acknowledged[number] = where
            else:
                self.failed.append(error)

        try:
            producer.produce(
                self.topic,
                f"{self.name} {number} ".ljust(VALUE_BYTES, "."),
                key,
                int(key[1:]) % self.partition_count,
                on_delivery=delivered,
            )
        except BufferError:
            producer.poll(0.1)
            return
        self.number += 1


@dataclass
class Committer:
    """A group's only member; commits growing offsets, and notes which were acknowledged."""

    bootstrap: str
    attempted: int = 0
    acknowledged: int = 0

    def run(self, stop: threading.Event) -> None:
        """Commit until told to stop."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "log_level": "0",
            }
        )
        while not stop.wait(0.01):
            self.attempted += 1
            where = TopicPartition("steady", 0, self.attempted)
            try:
                (done,) = consumer.commit(offsets=[where], asynchronous=False)
            except KafkaException:
                continue
            if done.error is None:
                self.acknowledged = self.attempted
        consumer.close()


@dataclass
class Creator:
    """Creates and deletes topics, and notes which must be there and which must not."""

    bootstrap: str
    there: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def run(self, stop: threading.Event) -> None:
        """Create two topics and delete the first, once at least and until told to stop."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": "0"})
        number = 0
        while not stop.wait(0.05) or not self.there:
            first, second = f"brief-{number}", f"brief-{number + 1}"
            number += 2
            if self._did(admin.create_topics([NewTopic(first, 2, 1)])) and self._did(
                admin.delete_topics([first])
            ):
                self.gone.add(first)
            if self._did(admin.create_topics([NewTopic(second, 2, 1)])):
                self.there.add(second)
                stop.wait(0.5)

    def _did(self, asked: dict[str, object]) -> bool:
        try:
            for future in asked.values():
                future.result(5)  # type: ignore[attr-defined]
        except (KafkaException, TimeoutError):
            return False
        return True


class Siege:
    """The load on one broker, from the first kill to the last."""

    def __init__(self, broker: OdradekProcess) -> None:
        self.broker, self.kills = broker, 0
        bootstrap = broker.bootstrap
        in_order = {"acks": "all", "enable.idempotence": "true"}
        at_once = {"acks": "1", "enable.idempotence": "false"}
        self.senders = [
            Sender("first", bootstrap, "steady", 3, in_order),
            Sender("second", bootstrap, "steady", 3, in_order),
            Sender("quick", bootstrap, "quick", 1, at_once),
            # More than retention leaves, by a segment that it deletes.
            Sender("window", bootstrap, "window", 1, in_order, 3 * SEGMENT_RECORDS),
            # Of one partition at least, a segment and more.
            Sender("table", bootstrap, "table", 2, in_order, 3 * SEGMENT_RECORDS),
        ]
        self.committer, self.creator = Committer(bootstrap), Creator(bootstrap)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics(TOPICS).values():
            future.result()

    def run(self, kills: int, seed: int, time_max_s: float) -> None:
        """Kill the broker at random moments, as often as asked or until the time has passed."""
        source = random.Random(seed)
        end_s = time.monotonic() + time_max_s
        stop = threading.Event()
        errors: list[BaseException] = []

        def guarded(run: Callable[[threading.Event], None]) -> None:
            try:
                run(stop)
            except BaseException as error:
                errors.append(error)

        runs = [one.run for one in (*self.senders, self.committer, self.creator)]
        threads = [threading.Thread(target=guarded, args=(run,)) for run in runs]
        for thread in threads:
            thread.start()
        try:
            while self.kills < kills and time.monotonic() < end_s:
                time.sleep(source.uniform(*LIVES_S))  # the load runs on: this is its length
                self.broker.kill()
                self.kills += 1
                self.broker.start()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not errors, errors

    def check(self) -> None:
        """Check that all that was acknowledged is there, and nothing of it twice."""
        for sender in self.senders:
            assert not sender.failed, (sender.name, sender.failed[:3])
            assert len(sender.acknowledged) == sender.number >= sender.number_min
        steady = read_all(self.broker.bootstrap, "steady", 3)
        for sender in self.senders[:2]:
            check_exactly_once(sender, [one for one in steady if one.sender == sender.name])
        _check_no_gaps(steady, 3)
        quick = read_all(self.broker.bootstrap, "quick", 1)
        there = {one.number for one in quick}
        lost = [number for number in self.senders[2].acknowledged if number not in there]
        assert not lost, f"acks=1: lost {lost[:10]}"
        window = self._read_until(
            lambda found: found[0].offset > 0, "window", 1, "retention deletes records"
        )
        check_exactly_once(self.senders[3], window, window[0].offset)
        sent = self.senders[4].number
        self._check_table(
            self._read_until(lambda found: len(found) < sent, "table", 2, "the table is cleaned")
        )
        self._check_group()
        self._check_topics()

    def _read_until(
        self, holds: Callable[[list[Stored]], bool], topic: str, partitions: int, done: str
    ) -> list[Stored]:
        """Read a topic until what the broker does by itself has been done."""

        def read() -> list[Stored]:
            found = read_all(self.broker.bootstrap, topic, partitions)
            return found if holds(found) else []

        return wait_until(read, done, FINISH_TIMEOUT_S)

    def _check_table(self, found: list[Stored]) -> None:
        sender = self.senders[4]
        numbers = [one.number for one in found]
        assert len(set(numbers)) == len(numbers), "a record was written twice"
        for one in found:
            assert _is_at(one, sender.acknowledged[one.number])
        last: dict[str, int] = {}
        source = random.Random(sender.name)
        for number in range(sender.number):
            last[f"k{source.randrange(KEYS)}"] = number
        found_last = {one.key: one.number for one in found}
        assert found_last == last, "a key has not its last value"

    def _check_group(self) -> None:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": GROUP})
        (found,) = consumer.committed([TopicPartition("steady", 0)], FINISH_TIMEOUT_S)
        consumer.close()
        assert 0 < self.committer.acknowledged <= found.offset <= self.committer.attempted

    def _check_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        found = admin.list_topics(timeout=FINISH_TIMEOUT_S).topics.keys()
        assert self.creator.there, "no topic was created"
        assert self.creator.there <= found
        assert not self.creator.gone & found


def read_all(bootstrap: str, topic: str, partition_count: int) -> list[Stored]:
    """Read every record of a topic, each partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, at, 0) for at in range(partition_count)])
    found: list[Stored] = []
    ended = 0
    while ended < partition_count:
        message = consumer.poll(FINISH_TIMEOUT_S)
        assert message is not None, f"the reader of {topic} got stuck"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended += 1
            continue
        sender, number, _ = message.value().decode().split(" ")
        where = message.partition(), message.offset()
        found.append(Stored(*where, message.key().decode(), sender, int(number)))
    consumer.close()
    return found


def check_exactly_once(sender: Sender, found: list[Stored], start: int = 0) -> None:
    """Check that each record from an offset on is there once, where it was acknowledged."""
    there = {one.number: one for one in found}
    assert len(there) == len(found), f"{sender.name}: a record was written twice"
    places = sender.acknowledged
    # Without its offset, a record that is not there may have been before the start.
    lost = {n for n, (_, offset) in places.items() if n not in there and (offset or 0) >= start}
    assert not lost, f"{sender.name}: lost {sorted(lost)[:10]}"
    elsewhere = [one for one in found if not _is_at(one, places[one.number])]
    assert not elsewhere, f"{sender.name}: records are elsewhere: {elsewhere[:10]}"
    last: dict[int, int] = {}
    for one in found:
        assert last.get(one.partition, -1) < one.number, f"{sender.name}: out of order"
        last[one.partition] = one.number


def _is_at(found: Stored, place: tuple[int, int | None]) -> bool:
    return found.partition == place[0] and place[1] in (None, found.offset)


def _check_no_gaps(found: list[Stored], partition_count: int) -> None:
    for partition in range(partition_count):
        offsets = [one.offset for one in found if one.partition == partition]
        assert offsets == list(range(len(offsets)))
