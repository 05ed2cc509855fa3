"""Kafka Streams counts words exactly once, though it and brokers are killed again and again.

The counts are kept in state stores, whose changelogs are compacted topics; half of the restarts
find no store and restore it from there. With no cache in between the output has each count of
a word that there ever was, so that one that is missing or there twice shows.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import starting
from tests.interop.conftest import KIND, Broker, StartBroker
from tests.interop.programs import BUILDS, Process

LIBS = BUILDS / "streams" / "libs"
INPUT, OUTPUT, PARTITIONS = "lines", "counts", 3
WORDS = [f"word-{n}" for n in range(200)]
WORDS_A_LINE = 10
KILLS = int(os.environ.get("STREAMS_KILLS", "10"))
SEED = int(os.environ.get("STREAMS_SEED", "1"))
BETWEEN_KILLS_S = (4.0, 9.0)
QUIET_TIMEOUT_S = 120.0

SETTINGS = {
    "log.cleaner.backoff.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    # A streams group gets its timeouts from the broker.
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.session.timeout.ms": "6000",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
}

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker that may be killed: the supervisor of workers logs that as an error."""
    yield from starting(KIND, tmp_path)


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_word_counts_are_exact_though_the_application_and_brokers_are_killed(
    start_broker: StartBroker, tmp_path: Path, protocol: str
) -> None:
    if not LIBS.exists():
        pytest.skip("the program is not built: run `make interop`")
    source = random.Random(SEED)
    broker = start_broker(SETTINGS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = [NewTopic(name, PARTITIONS, 1) for name in (INPUT, OUTPUT)]
    for created in admin.create_topics(new).values():
        created.result(30)
    writing = Writing(broker.bootstrap, source.randrange(1 << 30))
    state = tmp_path / "state"
    application = run(broker, state, protocol)
    writing.start()
    try:
        for kill in range(KILLS):
            time.sleep(source.uniform(*BETWEEN_KILLS_S))  # the load runs on: this is its length
            if kill % 2:
                broker.kill()
                broker.start()
            else:
                application.close()
                if kill % 4:
                    shutil.rmtree(state, ignore_errors=True)
                application = run(broker, state, protocol)
        written = writing.stop()
        seen = read_until(broker.bootstrap, written)
    finally:
        application.close()
    for word, count in written.items():
        assert seen[word] == list(range(1, count + 1)), word
    assert set(seen) == set(written)


def run(broker: Broker, state: Path, protocol: str) -> Process:
    """Start the application."""
    classes = f"{BUILDS / 'streams' / 'classes'}:{LIBS}/*"
    arguments = [broker.bootstrap, str(state), INPUT, OUTPUT, protocol]
    level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return Process(["java", "-Xmx512m", level, "-cp", classes, "streams.WordCount", *arguments])


class Writing(threading.Thread):
    """Writes lines of words until told to stop; every one arrives once."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._random = random.Random(seed)
        self._ends = threading.Event()
        self._counts: Counter[str] = Counter()
        self._errors: list[KafkaError] = []
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20}
        self._producer = Producer(settings)

    def run(self) -> None:
        while not self._ends.wait(0.05):
            for _ in range(20):
                # Some words are much more frequent than others, as in any language.
                words = [
                    WORDS[int(self._random.random() ** 3 * len(WORDS))]
                    for _ in range(WORDS_A_LINE)
                ]
                self._counts.update(words)
                self._producer.produce(INPUT, " ".join(words), on_delivery=self._delivered)
            self._producer.poll(0)

    def stop(self) -> Counter[str]:
        """End, and return how often each word has been written."""
        self._ends.set()
        self.join()
        assert self._producer.flush(QUIET_TIMEOUT_S) == 0
        assert not self._errors, self._errors[0]
        return self._counts

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._errors.append(error)


def read_until(bootstrap: str, written: Counter[str]) -> dict[str, list[int]]:
    """Read the committed counts of each word, in their order, until all are there."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reading",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([OUTPUT])
    seen: dict[str, list[int]] = defaultdict(list)
    wanted, found, deadline = written.total(), 0, time.monotonic() + QUIET_TIMEOUT_S
    while found < wanted and time.monotonic() < deadline:
        for message in consumer.consume(5_000, 1.0):
            assert message.error() is None, message.error()
            key, value = message.key(), message.value()
            assert key is not None and value is not None
            seen[key.decode()].append(int(value))
            found += 1
            deadline = time.monotonic() + QUIET_TIMEOUT_S
    consumer.close()
    return seen
