"""Questions to what runs in containers, at the ports of this machine."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer

from tests.support.waiting import wait_until

WAIT_S = 180


def fetch(url: str) -> Any:
    """Return the JSON of an answer."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def answers(asking: Callable[[], object]) -> bool:
    """Return whether a question is answered with something."""
    try:
        return bool(asking())
    except OSError:
        return False


def await_answer(url: str) -> None:
    """Wait until an address answers."""
    wait_until(lambda: answers(lambda: fetch(url)), f"{url} answers", WAIT_S)


def produce(port: int, topic: str, values: list[bytes]) -> None:
    """Write records by the broker at a port."""
    producer = Producer({"bootstrap.servers": f"localhost:{port}", "enable.idempotence": True})
    failed: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(WAIT_S) == 0 and not failed, failed


def consume(port: int, topic: str, count: int) -> list[bytes]:
    """Return the values of the first records, sorted."""
    settings = {"bootstrap.servers": f"localhost:{port}", "group.id": f"reader-of-{port}"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        values: list[bytes] = []
        while len(values) < count:
            record = consumer.poll(WAIT_S)
            assert record is not None, f"{len(values)} records of {count} within {WAIT_S} s"
            if record.error() is None:
                values.append(record.value() or b"")
        return sorted(values)
    finally:
        consumer.close()
