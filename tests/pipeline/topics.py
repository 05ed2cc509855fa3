"""The same topics on any broker: gaps, transactions, aborted tails, records that were deleted.

Timestamps are given, and each batch is sent alone: what one broker holds another does, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from odradek.storage.checkpoints import CLEANER_OFFSETS
from tests.cleaner.kafka_cleaner import segment_offsets
from tests.support.waiting import wait_until

PATIENCE_S = 60.0
# A day of May 2025. The markers of transactions, which have the broker's time, are far later.
FIRST_MS = 1_746_093_600_000
STEP_MS = 10
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

KEPT = {"retention.ms": "-1"}  # the timestamps are old
SMALL = {**KEPT, "internal.segment.bytes": "1000"}
CLEANED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
PRICES, COMPACTED, TRANSFERS, ABORTED, EMPTIED, HELD, TRIMMED, GONE = (
    *("prices", "compacted", "transfers", "aborted", "emptied", "held", "trimmed", "gone"),
)
CLEANED_PLACES = [(COMPACTED, 0), (COMPACTED, 1), (EMPTIED, 0)]


@dataclass(frozen=True, slots=True)
class Sent:
    """A record to be sent."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = FIRST_MS
    headers: Sequence[tuple[str, bytes | None]] = ()


class Topics:
    """Creates and fills topics of a broker, one acknowledged batch after the other."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._producers = {codec: self._producer(codec) for codec in CODECS}
        self._transactional: dict[str, Producer] = {}

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        """Create a topic, and wait until clients see it."""
        made = self._admin.create_topics([NewTopic(name, partitions, 1, config=config)])
        made[name].result(PATIENCE_S)
        wait_until(partial(self._leads, name, partitions), f"{name} is there")

    def extend(self, name: str, partitions: int) -> None:
        """Add partitions to a topic, up to a number."""
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(PATIENCE_S)
        wait_until(partial(self._leads, name, partitions), f"{name} has {partitions} partitions")
        # The old ones would learn of them minutes later.
        self._producers = {codec: self._producer(codec) for codec in CODECS}

    def delete(self, name: str) -> None:
        """Delete a topic, and wait until clients see that."""
        self._admin.delete_topics([name])[name].result(PATIENCE_S)
        wait_until(lambda: not self._has(name, 0), f"{name} is gone")

    def send(self, topic: str, records: Iterable[Sent], codec: str = "none") -> None:
        """Send records: those of a partition as one batch."""
        _send(self._producers[codec], topic, records)

    def send_each(self, topic: str, records: Iterable[Sent]) -> None:
        """Send each record as a batch of its own."""
        for record in records:
            self.send(topic, [record])

    def begin(self, topic: str, records: Iterable[Sent], name: str = "teller") -> None:
        """Begin a transaction that sends records."""
        producer = self._transactional.get(name)
        if producer is None:
            settings = {"transactional.id": name, "transaction.timeout.ms": 600_000}
            producer = self._transactional[name] = self._producer("none", **settings)
            producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        _send(producer, topic, records)

    def end(self, topic: str, *, commits: bool, name: str = "teller") -> None:
        """End the transaction that was begun last, and wait until its marker is there."""
        producer = self._transactional[name]
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
        wait_until(lambda: self._is_stable(topic), f"no transaction is open in {topic}")

    def alter(self, topic: str, **config: str) -> None:
        """Set configs of a topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Delete the records before an offset; -1 stands for the end."""
        place = TopicPartition(topic, partition, before)
        for future in self._admin.delete_records([place]).values():
            future.result(PATIENCE_S)

    def groups(self) -> list[str]:
        """Return the ids of the groups that the broker knows."""
        listed = self._admin.list_consumer_groups().result(PATIENCE_S)
        return sorted(group.group_id for group in listed.valid)

    def ends(self, *names: str, is_committed: bool = False) -> dict[str, dict[int, int]]:
        """Return where the partitions of topics end: name -> partition -> offset."""
        committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
        wanted = {
            TopicPartition(name, number): OffsetSpec.latest()
            for name in names
            for number in self._admin.list_topics(name, PATIENCE_S).topics[name].partitions
        }
        futures = self._admin.list_offsets(
            wanted, isolation_level=committed if is_committed else uncommitted
        )
        ends: dict[str, dict[int, int]] = {name: {} for name in names}
        for place, future in futures.items():
            ends[place.topic][place.partition] = future.result(PATIENCE_S).offset
        return ends

    def _is_stable(self, topic: str) -> bool:
        return self.ends(topic, is_committed=True) == self.ends(topic)

    def _has(self, name: str, partitions: int) -> bool:
        topic = self._admin.list_topics(timeout=PATIENCE_S).topics.get(name)
        return topic is not None and len(topic.partitions) >= partitions

    def _leads(self, name: str, partitions: int) -> bool:
        """Return whether the broker serves a topic's partitions.

        Clients may see them a little earlier. A batch that is refused then is sent again record by
        record, and in another order.
        """
        try:
            return self._has(name, partitions) and len(self.ends(name)[name]) >= partitions
        except KafkaException:
            return False

    def _producer(self, codec: str, **settings: object) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "linger.ms": 60_000,  # flush() alone sends
                "log_level": 0,
                **settings,
            }
        )


def numbered(count: int, *, first: int = 0, keys: int = 7, partitions: int = 1) -> list[Sent]:
    """Return records whose values and timestamps count up, over some keys and partitions."""
    return [
        Sent(
            b"%d" % number,
            b"key-%d" % (number % keys),
            number % partitions,
            FIRST_MS + STEP_MS * number,
        )
        for number in range(first, first + count)
    ]


def fill(topics: Topics) -> None:
    """Make all the topics; that of HELD ends in a transaction that is left open."""
    _fill_prices(topics)
    _fill_compacted(topics)
    topics.create(TRANSFERS, 2, **KEPT)
    for first, commits in ((0, True), (20, False), (40, True), (60, False)):
        topics.begin(TRANSFERS, numbered(10, first=first))
        topics.end(TRANSFERS, commits=commits)
        topics.begin(TRANSFERS, [Sent(b"%d" % first, partition=1)])
        topics.end(TRANSFERS, commits=not commits)

    topics.create(ABORTED, 1, **KEPT)
    topics.create(EMPTIED, 1, **SMALL)
    for name in (ABORTED, EMPTIED):
        topics.send(name, numbered(5))
        topics.begin(name, numbered(30, first=5, keys=3))
        topics.end(name, commits=False)
    # Only now: what one cleaning leaves does not depend on when it was, unlike what several do.
    for name in (COMPACTED, EMPTIED):
        topics.alter(name, **CLEANED)

    topics.create(HELD, 1, **KEPT)
    topics.send(HELD, numbered(5))
    topics.begin(HELD, numbered(5, first=5), name="holder")
    topics.send(HELD, numbered(5, first=10))

    for name, before in ((TRIMMED, 12), (GONE, -1)):
        topics.create(name, 1, **KEPT)
        topics.send_each(name, numbered(30))
        topics.delete_records(name, before)


def _fill_prices(topics: Topics) -> None:
    """Fill partitions unequally: one has all codecs, one times that go back, one nothing."""
    topics.create(PRICES, 4, **KEPT)
    for at, codec in enumerate(CODECS):
        topics.send(PRICES, numbered(12, first=12 * at), codec)
    back = [Sent(b"%d" % at, None, 1, FIRST_MS + STEP_MS * (20 - at)) for at in range(20)]
    for at in range(0, 20, 5):
        topics.send(PRICES, back[at : at + 5])
    headers: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", b"2"), ("none", None)]
    odd = Sent(b"\xff\x00", None, 2, headers=headers)
    topics.send(PRICES, [Sent(None, b"deleted", 2), Sent(b"", b"", 2), odd])


def _fill_compacted(topics: Topics) -> None:
    """Fill what is to be cleaned: one partition to whole segments of gaps, one to holes."""
    topics.create(COMPACTED, 2, **SMALL)
    topics.send_each(COMPACTED, numbered(30, keys=2))
    topics.send_each(COMPACTED, numbered(20, first=30, keys=20))
    topics.send_each(COMPACTED, numbered(30, first=50, keys=2))
    holes = [
        replace(one, partition=1, key=b"%d" % at if at % 5 == 1 else one.key)
        for at, one in enumerate(numbered(90, keys=3))
    ]
    for at in range(0, len(holes), 3):
        topics.send(COMPACTED, holes[at : at + 3])


def wait_until_cleaned(data: Path, places: Iterable[tuple[str, int]]) -> None:
    """Wait until a broker has cleaned partitions up to their active segments."""
    wait_until(lambda: all(_is_clean(data, *place) for place in places), f"{data} is clean")


def _is_clean(data: Path, topic: str, partition: int) -> bool:
    checkpoint = data / CLEANER_OFFSETS
    if not checkpoint.exists():
        return False
    words = [line.split() for line in checkpoint.read_text().splitlines()]
    cleaned = {(word[0], int(word[1])): int(word[2]) for word in words if len(word) == 3}
    active = segment_offsets(data / f"{topic}-{partition}")[-1]
    return cleaned.get((topic, partition)) == active


def _send(producer: Producer, topic: str, records: Iterable[Sent]) -> None:
    errors: list[object] = []
    for one in records:
        producer.produce(
            topic,
            one.value,
            one.key,
            one.partition,
            timestamp=one.timestamp_ms,
            headers=list(one.headers),
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(PATIENCE_S) == 0
    assert not errors, errors
