"""Real clients in consumer groups: Kafka's Java consumer and librdkafka, live through changes."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import OdradekProcess, kafka_tool
from tests.protocol.kafka_jars import require_jars
from tests.support.forking import ForkedOdradek
from tests.support.java import program
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

DRIVER = Path(__file__).with_name("ConsumerDriver.java")
PARTITIONS = 4
PATIENCE_S = 60.0
BY_CONSUMER, BY_CLASSIC = "group.protocol=consumer", "group.protocol=classic"
# A classic member hears of a rebalance by its heartbeat.
SOON = "heartbeat.interval.ms=500"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OdradekProcess]:
    require_jars()
    settings = {
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": "200",
    }
    process = ForkedOdradek(tmp_path, settings)
    process.start()
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    admin.create_topics([NewTopic("t", PARTITIONS)])["t"].result(30)
    yield process
    process.stop()


@pytest.fixture
def driver(broker: OdradekProcess) -> Iterator[Driver]:
    made = Driver(broker.bootstrap)
    yield made
    made.close()


class Driver:
    """Java consumers in a process, told what to do by lines; remembers what they have said."""

    def __init__(self, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            program(DRIVER, bootstrap),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.assigned: dict[str, frozenset[str]] = {}
        self.read: list[tuple[str, str]] = []
        self.failures: list[str] = []
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def start(self, name: str, topics: str, *properties: str) -> None:
        self._say(" ".join(["start", name, topics, "group.id=g", *properties]))

    def stop(self, name: str) -> None:
        self._say(f"stop {name}")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def shares(self, *names: str, topic: str = "t", count: int = PARTITIONS) -> bool:
        """Return whether some consumers, and no others, have all partitions, each one once."""
        if set(self.assigned) != set(names) or self.failures:
            return False
        parts = [part for some in self.assigned.values() for part in some]
        return sorted(parts) == [f"{topic}-{number}" for number in range(count)] and all(
            self.assigned.values()
        )

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, what, *rest = line.split()
            if what == "assigned":
                self.assigned[name] = frozenset(rest[0].split(",") if rest else ())
            elif what == "read":
                self.read.append((rest[0], rest[1]))
            elif what == "stopped":
                self.assigned.pop(name, None)
            elif what == "failed":
                self.failures.append(line)


def produce(broker: OdradekProcess, count: int, start: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(start, start + count):
        producer.produce("t", str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def test_a_group_changes_its_protocol_while_its_members_consume(
    broker: OdradekProcess, driver: Driver
) -> None:
    driver.start("A", "t", BY_CLASSIC, SOON)
    wait_until(lambda: driver.shares("A"))
    driver.start("B", "t", BY_CONSUMER)
    wait_until(lambda: driver.shares("A", "B"))
    assert "consumer" in types(broker)["g"].lower()
    produce(broker, 40)
    wait_until(lambda: len(driver.read) >= 40)
    driver.start("C", "t", BY_CLASSIC, SOON)
    wait_until(lambda: driver.shares("A", "B", "C"))
    driver.stop("B")
    wait_until(lambda: driver.shares("A", "C"))
    assert "classic" in types(broker)["g"].lower()
    produce(broker, 40, 40)
    wait_until(lambda: len({value for _, value in driver.read}) >= 80)
    assert not driver.failures
    # A member that lost a partition before its commit has it read again, and nothing is left out.
    assert {value for _, value in driver.read} == {str(number) for number in range(80)}


def test_members_survive_a_restart_of_the_broker(broker: OdradekProcess, driver: Driver) -> None:
    driver.start("A", "t", BY_CONSUMER)
    driver.start("B", "^t.*", BY_CONSUMER)
    wait_until(lambda: driver.shares("A", "B"))
    broker.kill()
    broker.start()
    produce(broker, 40)
    wait_until(lambda: len({value for _, value in driver.read}) >= 40)
    assert driver.shares("A", "B")
    told = kafka_tool(
        [
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server", broker.bootstrap,
            "--describe", "--group", "g", "--state",
        ]
    ).stdout  # fmt: skip
    assert "Stable" in told and "uniform" in told


def test_librdkafka_consumes_by_the_consumer_protocol(broker: OdradekProcess) -> None:
    produce(broker, 40)
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "g",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    values: set[bytes] = set()
    deadline = time.monotonic() + PATIENCE_S
    while len(values) < 40 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.add(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    assert len(values) == 40


def types(broker: OdradekProcess) -> dict[str, str]:
    """Return the types of groups as Kafka's tool tells them."""
    told = kafka_tool(
        [
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server", broker.bootstrap, "--list", "--type",
        ]
    ).stdout  # fmt: skip
    rows = [line.split() for line in told.splitlines() if line.strip()]
    return {row[0]: row[-1] for row in rows[1:]}
