"""Real clients log nothing with this broker that they do not log with Apache Kafka."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from bench.processes import KafkaProcess, OdradekProcess, kafka_libs
from tests.support.forking import ForkedOdradek

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PATIENCE_S = 60.0
SETTINGS = {"auto.create.topics.enable": "true"}


class Lines(logging.Handler):
    """Keeps what librdkafka logs, without what is another in each run."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = re.sub(r"127\.0\.0\.1:\d+|\d+ms|[\w+/-]{22}", "...", record.getMessage())
        text = re.sub(r"rdkafka#(producer|consumer)-\d+", r"rdkafka#\1", text)
        self.lines.add(f"{record.levelname} {text}")


def test_librdkafka_starts_without_a_line_that_kafka_does_not_earn(tmp_path: Path) -> None:
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    ours, kafkas = (
        _logged(process)
        for process in (
            ForkedOdradek(tmp_path / "ours", SETTINGS),
            KafkaProcess(tmp_path / "kafka", SETTINGS),
        )
    )
    assert ours <= kafkas


def _logged(process: OdradekProcess | KafkaProcess) -> set[str]:
    handler, logger = Lines(), logging.Logger("librdkafka")
    logger.addHandler(handler)
    process.start()
    try:
        _produce(process.bootstrap, logger)
        _consume(process.bootstrap, logger)
    finally:
        process.stop()
    return handler.lines


def _produce(bootstrap: str, logger: logging.Logger) -> None:
    # With debug=telemetry it says that it has found a broker to ask; it asks only where it may.
    producer = Producer({"bootstrap.servers": bootstrap, "debug": "telemetry"}, logger=logger)
    delivered: list[Any] = []
    producer.produce("orders", b"value", on_delivery=lambda *report: delivered.append(report))
    _until(lambda: producer.poll(0.1), delivered)
    assert delivered[0][0] is None
    _linger(producer)


def _consume(bootstrap: str, logger: logging.Logger) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "debug": "telemetry",
    }
    consumer = Consumer(settings, logger=logger)
    consumer.subscribe(["orders"])
    read: list[Any] = []

    def poll() -> None:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            read.append(message)

    _until(poll, read)
    _linger(consumer)
    consumer.close()


def _until(poll: Callable[[], object], found: list[Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not found:
        assert time.monotonic() < deadline, "nothing came"
        poll()


def _linger(client: Producer | Consumer) -> None:
    """Have the client ask for cluster metadata: what it asks a broker for is answered in turn."""
    assert client.list_topics(timeout=PATIENCE_S).brokers
    client.poll(0.1)
