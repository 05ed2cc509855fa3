"""The worked example of "Log Compacted Topics in Apache Kafka", by a stock client and files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

from tests.conftest import StartBroker

TOPIC = "latest-product-price"
CONFIG = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "100",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
}
PRODUCED = ["p3:10", "p5:7", "p3:11", "p6:25", "p6:12", "p5:14", "p5:17"]
REMAINS = ["p3:11", "p6:12", "p5:14", "p5:17"]
WAIT_S = 30


def _wait_for_line(file: Path, line: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if file.exists() and line in file.read_text().splitlines():
            return
        time.sleep(0.02)
    found = file.read_text() if file.exists() else "no file"
    raise AssertionError(f"{file.name} never said {line!r}: {found}")


@pytest.mark.slow
def test_the_articles_example_ends_as_the_article_says(start_broker: StartBroker) -> None:
    broker = start_broker({"log.cleaner.backoff.ms": "50"})
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(TOPIC, 1, 1, topic_configs=CONFIG)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=0)
    start_ms = int(time.time() * 1000)
    for number, entry in enumerate(PRODUCED):
        key, value = entry.encode().split(b":")
        # A segment lives for segment.ms of the records' own time.
        at_ms = start_ms + 200 * number
        producer.send(TOPIC, key=key, value=value, timestamp_ms=at_ms).get(WAIT_S)
    producer.close()
    _wait_for_line(broker.data / "cleaner-offset-checkpoint", f"{TOPIC} 0 6")
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_S * 1000,
    )
    seen = []
    for record in consumer:
        seen.append((record.offset, f"{record.key.decode()}:{record.value.decode()}"))
        if record.offset == len(PRODUCED) - 1:
            break
    consumer.close()
    assert [entry for _, entry in seen] == REMAINS
    assert [offset for offset, _ in seen] == [2, 4, 5, 6]
    logs = sorted(path.name for path in (broker.data / f"{TOPIC}-0").glob("*.log"))
    assert logs == [f"{base:020d}.log" for base in (0, 6)]
