"""Kafka's TransactionalMessageCopier, which its own system tests kill: each message comes once."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import OdradekProcess
from tests.compat.tools import Client
from tests.conftest import StartBroker

COUNT = 400
PATIENCE_S = 120.0
# A copier asks how far it is before it aborts what its predecessor has left open: that waits for
# the transaction to time out.
TRANSACTION_MS = 3_000
SETTINGS = {
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@pytest.mark.kafka
@pytest.mark.interop
@pytest.mark.timeout(600)
@pytest.mark.parametrize("aborts", [False, True])
def test_each_message_is_copied_once(
    start_broker: StartBroker, tmp_path: Path, aborts: bool
) -> None:
    broker = start_broker(SETTINGS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, 1) for name in ("source", "target")]
    for created in admin.create_topics(topics).values():
        created.result()
    expected = [b"%d" % number for number in range(COUNT)]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in expected:
        producer.produce("source", value)
    assert producer.flush(PATIENCE_S) == 0
    first = _start(broker, tmp_path / "first", aborts)
    try:
        first.wait_for('"totalProcessed":1')  # a hundred or more
    finally:
        first.process.kill()
        first.process.wait()
    second = _start(broker, tmp_path / "second", aborts)
    try:
        assert second.end().status == 0
    finally:
        second.process.kill()
    events = [json.loads(line) for line in second.printed.read_text().splitlines()]
    assert events[-1]["stage"] == "ShutdownComplete"
    assert _read(broker) == expected


def _start(broker: OdradekProcess, printed: Path, aborts: bool) -> Client:
    arguments = ["--broker-list", broker.bootstrap, "--transactional-id", "copier"]
    arguments += ["--input-topic", "source", "--input-partition", "0", "--output-topic", "target"]
    arguments += ["--consumer-group", "copiers", "--transaction-size", "20"]
    arguments += ["--transaction-timeout", str(TRANSACTION_MS)]
    arguments += ["--enable-random-aborts"] if aborts else []
    return Client.start("copy", arguments, printed)


def _read(broker: OdradekProcess) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("target", 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        one = consumer.poll(1.0)
        if one is not None and one.error() is not None:
            break  # the end
        if one is not None:
            found.append(one.value())
    consumer.close()
    return found
