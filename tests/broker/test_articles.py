"""What the articles tell of brokers: their problems and promises, by clients and over time.

The articles are listed in tests/cleaner/test_articles.py, which holds the rest.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from odradek.cleaner.runtime import deaths
from odradek.protocol import batch_scan
from tests.broker.cleaning import (
    COMPACT,
    alter_topic,
    cleaning,
    is_compacted,
    latest,
    new_log,
    numbered,
    put,
    records,
    settled,
)
from tests.broker.live import on_uvloop, until
from tests.broker.test_metrics import HTTP, health
from tests.conftest import StartBroker
from tests.support.waiting import wait_until

TOPIC = "latest-product-price"
CONFIG = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "100",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
}
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
PRODUCED = ["p3:10", "p5:7", "p3:11", "p6:25", "p6:12", "p5:14", "p5:17"]
REMAINS = ["p3:11", "p6:12", "p5:14", "p5:17"]
WAIT_S = 60


def _wait_for_line(file: Path, line: str) -> None:
    def text() -> str:
        return file.read_text() if file.exists() else "no file"

    wait_until(
        lambda: line in text().splitlines(), f"{file.name} has {line!r}", WAIT_S, shown=text
    )


@pytest.mark.slow
def test_medium_the_example_by_a_stock_client_and_files(start_broker: StartBroker) -> None:
    """What a consumer reads, the segments' names and the checkpoint are the article's."""
    broker = start_broker({"log.cleaner.backoff.ms": "50"})
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(TOPIC, 1, 1, topic_configs={**CONFIG, **KEPT})])
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=0)
    start_ms = int(time.time() * 1000)
    for number, entry in enumerate(PRODUCED):
        key, value = entry.encode().split(b":")
        # A segment lives for segment.ms of the records' own time.
        at_ms = start_ms + 200 * number
        producer.send(TOPIC, key=key, value=value, timestamp_ms=at_ms).get(WAIT_S)
    producer.close()
    # Only now: cleaned while they come, the records would be in other segments each time.
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, TOPIC, configs=CONFIG)])
    admin.close()
    _wait_for_line(broker.data / "cleaner-offset-checkpoint", f"{TOPIC} 0 6")
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_S * 1000,
        # kafka-python 3.0 may miss a topic at its start, and asks again after this
        metadata_max_age_ms=1_000,
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


@on_uvloop
async def test_heroku_a_thread_that_dies_is_loud_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The cleaner thread can die without any notification, and old data is not cleared up."""
    monkeypatch.setattr(deaths, "_RESTART_MIN_S", 0.01)
    really, calls = batch_scan.scan_batches, []

    def scan(*arguments: object) -> object:
        calls.append(None)
        if len(calls) == 1:
            raise SystemExit("the assertion of old")  # no Exception: it ends the thread
        return really(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(batch_scan, "scan_batches", scan)
    async with cleaning(tmp_path, HTTP) as (broker, one):
        log = await new_log(broker, "t")
        put(log, numbered(0, 20))
        await until(lambda: broker.cleaner.status().threads_died)
        assert (await health(broker))[0] == 503
        assert [r for r in caplog.records if r.levelno == logging.ERROR and "died" in r.message]
        other = await new_log(broker, "other")
        put(other, numbered(0, 20))
        await until(lambda: is_compacted(other))
        await alter_topic(one, "t", {"max.message.bytes": "2000000"})
        await until(lambda: is_compacted(log))


@on_uvloop
@pytest.mark.parametrize("lag_ms", [1, 400])
async def test_warpstream_a_silent_topic_is_compacted_at_its_greatest_lag(
    tmp_path: Path, lag_ms: int
) -> None:
    """The greatest lag holds below 2 hours and to the moment, though nobody writes any more."""
    settings = {
        "log.cleaner.backoff.ms": "3600000",
        "log.cleaner.min.cleanable.ratio": "1",
        "internal.segment.bytes": "100000",
    }
    async with cleaning(tmp_path, settings) as (broker, _):
        log = await new_log(broker, "t", COMPACT | {"max.compaction.lag.ms": str(lag_ms)})
        written_ms = broker.clock.now_ms()
        put(log, numbered(0, 20), timestamp=written_ms)
        broker.cleaner.wake()  # the longest rest is an hour: nobody else would tell of the topic
        await until(lambda: len(records(log)) == 2)
        assert broker.clock.now_ms() - written_ms > lag_ms
        assert latest(log) == {b"k0": b"18", b"k1": b"19"}


@on_uvloop
async def test_automq_a_policy_changes_without_a_restart(tmp_path: Path) -> None:
    """Kafka allows a topic's policy to be changed while it runs; so does this broker."""
    async with cleaning(tmp_path) as (broker, one):
        log = await new_log(broker, "t", {"cleanup.policy": "delete"})
        put(log, numbered(0, 20))
        await settled(broker)
        assert len(records(log)) == 20
        await alter_topic(one, "t", {"cleanup.policy": "compact"})
        await until(lambda: is_compacted(log))
        assert latest(log) == {b"k0": b"18", b"k1": b"19"}
        await alter_topic(one, "t", {"cleanup.policy": "delete", "retention.bytes": "0"})
        await until(lambda: log.log_start_offset == 20)


@on_uvloop
async def test_automq_an_uncleanable_partition_is_alone_and_not_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition whose cleaning failed is put on a list, in Kafka until the broker restarts."""
    really = batch_scan.scan_batches

    def scan(data: object, *rest: object) -> object:
        if b"odd" in bytes(data):  # type: ignore[call-overload]
            raise ValueError("nobody has expected that")
        return really(data, *rest)  # type: ignore[arg-type]

    async with cleaning(tmp_path) as (broker, one):
        with monkeypatch.context() as patched:
            patched.setattr(batch_scan, "scan_batches", scan)
            bad, good = await new_log(broker, "bad"), await new_log(broker, "good")
            put(bad, "odd:1 " + numbered(0, 20))
            put(good, numbered(0, 20))
            await until(lambda: is_compacted(good) and broker.cleaner.status().quarantined)
            assert "bad-0" in str(broker.problems()) and not is_compacted(bad)
        await alter_topic(one, "bad", {"min.cleanable.dirty.ratio": "0.1"})
        await until(lambda: is_compacted(bad) and not broker.problems())


KEYS, VERSIONS = 2000, 5


@pytest.mark.slow
def test_zendesk_a_consumer_reads_on_during_a_republication(start_broker: StartBroker) -> None:
    """From the beginning, while all is published again: each offset once, and the final state."""
    broker = start_broker(
        {
            "log.cleaner.backoff.ms": "10",
            "log.cleaner.min.cleanable.ratio": "0.1",
            "log.cleanup.policy": "compact",
            "internal.segment.bytes": "20000",
        }
    )
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "batch.size": 4000, "log_level": 0}
    )
    _publish(producer, 0)
    republication = threading.Thread(
        target=lambda: [_publish(producer, version) for version in range(1, VERSIONS)]
    )
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "error",
            "fetch.message.max.bytes": 3000,  # it is not far ahead of who polls it
            "queued.max.messages.kbytes": 4,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("tickets", 0, 0)])
    republication.start()
    offsets: list[int] = []
    state: dict[bytes, bytes] = {}
    deadline = time.monotonic() + 2 * WAIT_S
    while not offsets or offsets[-1] < KEYS * VERSIONS - 1:
        assert time.monotonic() < deadline, f"came as far as {offsets[-1:]}"
        if len(offsets) == KEYS // 4:  # what comes next has been cleaned when it is read
            _wait_until_clean_up_to(broker.data / "cleaner-offset-checkpoint", 2 * KEYS)
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            offsets.append(message.offset())
            state[message.key()] = message.value()
    republication.join()
    consumer.close()
    assert offsets == sorted(set(offsets))
    assert state == {b"%d" % key: b"%d" % (VERSIONS - 1) for key in range(KEYS)}
    assert len(offsets) < KEYS * VERSIONS  # it was cleaned meanwhile


def _publish(producer: Producer, version: int) -> None:
    for key in range(KEYS):
        producer.produce("tickets", b"%d" % version, b"%d" % key, 0)
        if key % 100 == 99:
            producer.flush(WAIT_S)


def _wait_until_clean_up_to(checkpoint: Path, offset: int) -> None:
    def is_clean() -> bool:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        return any(int(line.split()[2]) >= offset for line in lines if line.startswith("tickets "))

    wait_until(is_clean, f"the topic is clean up to {offset}", WAIT_S)
