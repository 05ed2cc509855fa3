"""Kafka Streams' word count, an example of Kafka's, counts right wherever its state lies.

It keeps its counts on disk and in a compacted topic, from which whoever takes over reads them.
"""

from __future__ import annotations

import shutil
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.processes import end, kafka_tool
from tests.compat.clients import Confluent
from tests.interop.conftest import Broker, StartBroker
from tests.interop.jvm import log_text, run_with_settings, skip_without_java
from tests.support.waiting import wait_until

MAIN = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"  # the example's own names
PARTITIONS = 4
TIMEOUT_S = 180.0
# The broker compacts whatever is not in an active segment, at once.
EAGER = {"log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0.001"}
SETTINGS = {
    "application.id": "counting",
    "commit.interval.ms": "200",
    # Only what is not in the active segment can be compacted.
    "topic.segment.ms": "1000",
}

# The tasks of a lost instance go to the others soon. A streams group gets its timeouts from the
# broker.
PROTOCOLS = {
    "classic": {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"},
    "streams": {"group.protocol": "streams"},
}
GROUP_SETTINGS = {
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.heartbeat.interval.ms": "1000",
    "group.streams.min.heartbeat.interval.ms": "1000",
}
COMMAND = "org.apache.kafka.tools.streams.StreamsGroupCommand"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@dataclass
class Instance:
    """One of the processes that count together."""

    directory: Path
    bootstrap: str
    protocol: str
    process: Popen[bytes] | None = None

    def start(self) -> None:
        """Start it with the state that its directory has."""
        state = {"bootstrap.servers": self.bootstrap, "state.dir": str(self.directory / "state")}
        settings = {**SETTINGS, **PROTOCOLS[self.protocol], **state}
        self.process = run_with_settings(MAIN, settings, self.directory)

    def stop(self) -> None:
        """Have it commit, leave its group, and end."""
        assert self.process is not None
        self.process.terminate()
        end(self.process)

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def forget(self) -> None:
        """Remove the state that it has on disk."""
        shutil.rmtree(self.directory / "state")


@dataclass
class Counting:
    """What is to be counted, what was, and who counts."""

    broker: Broker
    instances: list[Instance]
    written: Counter[str] = field(default_factory=Counter)

    def write(self, count: int) -> None:
        """Write lines of two words."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for n in range(count):
            words = (f"w{n % 7}", f"x{n % 11}")
            self.written.update(words)
            producer.produce(INPUT, " ".join(words).encode(), str(n).encode())
        assert producer.flush(TIMEOUT_S) == 0

    def wait(self) -> None:
        """Wait until all is counted and committed, so that no end makes it count again."""
        wait_until(
            lambda: self._counts() == self.written and self._committed(),
            "all is counted and committed",
            TIMEOUT_S,
            shown=self._so_far,
        )

    def _so_far(self) -> str:
        logs = "\n".join(log_text(one.directory) for one in self.instances)
        return f"{self._counts()}, not {self.written}\n{logs}"

    def _counts(self) -> Counter[str]:
        """Return the last count of each word."""
        records = _records(self.broker.bootstrap, OUTPUT, PARTITIONS)
        return Counter({key: struct.unpack(">q", value)[0] for key, value in records})

    def _committed(self) -> bool:
        """Return whether the application has committed the end of all that it reads."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        group = SETTINGS["application.id"]
        asked = [ConsumerGroupTopicPartitions(group)]
        offsets = admin.list_consumer_group_offsets(asked)[group].result().topic_partitions
        committed = {(place.topic, place.partition): place.offset for place in offsets}
        topics = admin.list_topics(timeout=TIMEOUT_S).topics
        read = [topic for topic in topics if topic == INPUT or topic.endswith("-repartition")]
        places = [TopicPartition(topic, n) for topic in read for n in range(PARTITIONS)]
        ends = admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()))
        return all(
            committed.get((place.topic, place.partition), 0) == end.result().offset
            for place, end in ends.items()
        )


@pytest.fixture(params=PROTOCOLS)
def counting(
    start_broker: StartBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Counting]:
    """Two instances that are not started yet."""
    skip_without_java()
    broker = start_broker({**EAGER, **GROUP_SETTINGS, "num.partitions": str(PARTITIONS)})
    for topic in (INPUT, OUTPUT):
        Confluent().create_topic(broker.bootstrap, topic, PARTITIONS)
    names = ("one", "two")
    both = [Instance(tmp_path / name, broker.bootstrap, request.param) for name in names]
    try:
        yield Counting(broker, both)
    finally:
        for instance in both:
            instance.kill()


def test_words_are_counted_once_by_whoever_takes_over(counting: Counting) -> None:
    first, second = counting.instances
    first.start()
    second.start()
    counting.write(200)
    counting.wait()
    if first.protocol == "streams":
        _check_command(counting)
    first.kill()
    counting.write(200)
    counting.wait()
    counting.broker.stop()
    counting.broker.start()
    counting.write(200)
    counting.wait()
    _wait_until_compacted(counting)
    second.stop()
    second.forget()
    counting.write(200)
    second.start()
    counting.wait()


def _check_command(counting: Counting) -> None:
    """Have Kafka's command list and describe the group."""
    server = ["--bootstrap-server", counting.broker.bootstrap]
    group = SETTINGS["application.id"]
    assert group in kafka_tool([COMMAND, *server, "--list"]).stdout.split()
    describe = [COMMAND, *server, "--describe", "--group", group]
    assert "Stable" in kafka_tool([*describe, "--state"]).stdout
    members = kafka_tool([*describe, "--members"]).stdout
    assert "ACTIVE" in members
    offsets = kafka_tool([*describe, "--offsets"]).stdout
    assert INPUT in offsets and "-repartition" in offsets


def _wait_until_compacted(counting: Counting) -> None:
    """Go on counting until each partition of the changelog has fewer records than changes."""
    admin = AdminClient({"bootstrap.servers": counting.broker.bootstrap})
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    (changelog,) = (topic for topic in topics if topic.endswith("-changelog"))
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        kept = sum(1 for _ in _records(counting.broker.bootstrap, changelog, PARTITIONS))
        if kept < counting.written.total() / 2:
            return
        counting.write(20)
        counting.wait()
    raise AssertionError("the changelog was not compacted")


def _records(bootstrap: str, topic: str, partitions: int) -> Iterator[tuple[str, bytes]]:
    """Return the keys and values that are in a topic, in order within each partition."""
    settings = {"group.id": "unused", "enable.partition.eof": True}
    reader = Consumer({"bootstrap.servers": bootstrap, **settings})
    reader.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
    ended = 0
    try:
        while ended < partitions:
            record = reader.poll(TIMEOUT_S)
            assert record is not None, "the end of the topic did not come"
            error = record.error()
            if error is None:
                yield record.key().decode(), record.value()
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
    finally:
        reader.close()
