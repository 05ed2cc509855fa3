"""kill -9 under load: what was acknowledged is there after the restart.

The process dies, not the machine: what was written is in the page cache, so acks=1 counts too.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import OdradekProcess
from tests.conftest import StartBroker

ROUNDS = 4
KEYS = 50
BATCH_BYTES = 8_000
ROUND_S = (0.4, 1.5)
FINISH_TIMEOUT_S = 30

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@dataclass
class Load:
    """Produces numbered values over some keys until told to stop; notes what was acknowledged."""

    bootstrap: str
    topic: str
    acks: str
    idempotent: bool
    number: int = 0
    acknowledged: dict[int, tuple[str, int]] = field(default_factory=dict)
    failed: dict[int, KafkaError] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        assert self._thread is not None
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": self.acks,
                "enable.idempotence": self.idempotent,
                "linger.ms": 1,
                # A batch has to fit into one of the small segments.
                "batch.size": BATCH_BYTES,
                "log_level": 0,
            }
        )
        source = random.Random(self.number)
        while not self._stop.is_set():
            key = f"k{source.randrange(KEYS)}"
            self._produce(producer, key, self.number)
            self.number += 1
            producer.poll(0)
            if self.number % 200 == 0:
                self._stop.wait(0.005)
        producer.flush(FINISH_TIMEOUT_S)

    def _produce(self, producer: Producer, key: str, number: int) -> None:
        def delivered(error: KafkaError | None, message: object) -> None:
            if error is None:
                self.acknowledged[number] = (key, message.offset())  # type: ignore[attr-defined]
            else:
                self.failed[number] = error

        try:
            producer.produce(self.topic, str(number), key, on_delivery=delivered)
        except BufferError:
            producer.poll(0.1)


def _read_all(bootstrap: str, topic: str) -> list[tuple[int, str, int]]:
    """Return (offset, key, number) of every record."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[tuple[int, str, int]] = []
    while True:
        message = consumer.poll(FINISH_TIMEOUT_S)
        assert message is not None, "the reader got stuck"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            consumer.close()
            return seen
        seen.append((message.offset(), message.key().decode(), int(message.value())))


def _create(broker: OdradekProcess, topic: str, config: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result()


def _kill_again_and_again(broker: OdradekProcess, load: Load, seed: int) -> None:
    """Kill the broker at random moments under load; every record is acknowledged in the end."""
    source = random.Random(seed)
    for _ in range(ROUNDS):
        load.start()
        threading.Event().wait(source.uniform(*ROUND_S))
        broker.kill()
        broker.start()
        load.stop()
    assert not load.failed


@pytest.mark.parametrize(("acks", "idempotent"), [("1", False), ("all", True)])
def test_every_acknowledged_record_survives_kill_9(
    start_broker: StartBroker, acks: str, idempotent: bool
) -> None:
    broker = start_broker({"internal.segment.bytes": "200000"})
    _create(broker, "load", {})
    load = Load(broker.bootstrap, "load", acks, idempotent)
    _kill_again_and_again(broker, load, seed=5)
    seen = _read_all(broker.bootstrap, "load")
    assert len(load.acknowledged) > 1000
    at = {number: (key, offset) for offset, key, number in seen}
    lost = [number for number in load.acknowledged if number not in at]
    assert not lost
    assert [offset for offset, _, _ in seen] == list(range(len(seen)))
    if idempotent:
        assert len(at) == len(seen), "a record was written twice"
        assert {n: at[n] for n in load.acknowledged} == load.acknowledged


def test_every_key_keeps_its_acknowledged_or_a_later_value_when_killed_while_cleaning(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(
        {
            "log.cleaner.backoff.ms": "10",
            "log.cleaner.min.cleanable.ratio": "0.01",
            "internal.segment.bytes": "20000",
            "log.segment.delete.delay.ms": "0",
        }
    )
    _create(broker, "table", {"cleanup.policy": "compact"})
    load = Load(broker.bootstrap, "table", "all", True)
    _kill_again_and_again(broker, load, seed=6)
    seen = _read_all(broker.bootstrap, "table")
    assert len(seen) < len(load.acknowledged), "nothing was cleaned"
    assert [offset for offset, _, _ in seen] == sorted({offset for offset, _, _ in seen})
    last = {key: (offset, number) for offset, key, number in seen}
    for number, (key, offset) in load.acknowledged.items():
        assert last[key][0] >= offset, f"record {number} of {key} is gone without a later one"
    values = {offset: number for offset, _, number in seen}
    for number, (_, offset) in load.acknowledged.items():
        assert values.get(offset, number) == number, "an offset has another record's value"
