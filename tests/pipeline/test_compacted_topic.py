"""Spark reads a compacted topic, gaps and all, to its end: as a batch and as a stream."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from odradek.pipeline.latest import LatestJob, start, wait
from odradek.pipeline.read import read_rows
from odradek.pipeline.source import TopicSource
from odradek.pipeline.table import read_table
from tests.pipeline.model import Record, as_record, as_table, latest
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

KEYS = 20
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "3600000",  # tombstones stay as long as the tests
}
# Far longer than a cleaning takes; a broker that does not clean fails here and says so.
CLEANING_TIMEOUT_SECONDS = 90

EndOffset = int


@pytest.fixture(scope="module")
def compacted(broker_bootstrap: str) -> tuple[str, list[Record], EndOffset]:
    """A topic whose cleaner has left gaps wider than 100 offsets, and what a consumer sees."""
    from kafka import KafkaProducer

    topic = _create(broker_bootstrap, COMPACTED)
    producer = KafkaProducer(bootstrap_servers=broker_bootstrap, acks="all", linger_ms=5)
    try:
        for number in range(2000):
            # The keys of the first half never return; the last of each key's records is deleted
            # for a quarter of them.
            key = number % KEYS + (0 if number < 1000 else KEYS)
            dead = number % 1000 >= 1000 - KEYS // 4
            producer.send(topic, None if dead else b"%d" % number, key=b"key-%d" % key)
        producer.flush(timeout=60)
        seen = _until_cleaned(broker_bootstrap, topic, producer)
    finally:
        producer.close(timeout=10)
    return topic, seen, _end_offset(broker_bootstrap, topic)


@pytest.fixture(scope="module")
def transactions(broker_bootstrap: str) -> None:
    """Skip what needs transactions, once for all, where the broker has none yet."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaError

    producer = None
    try:
        producer = KafkaProducer(
            bootstrap_servers=broker_bootstrap, transactional_id="probe", max_block_ms=15_000
        )
        producer.init_transactions()
    except KafkaError as error:
        pytest.skip(f"the broker serves no transactions: {error}")
    finally:
        if producer is not None:
            producer.close(timeout=10)


def test_a_batch_sees_what_a_consumer_sees(
    spark: SparkSession, broker_bootstrap: str, compacted: tuple[str, list[Record], EndOffset]
) -> None:
    topic, seen, _ = compacted
    assert _batch(spark, TopicSource(broker_bootstrap, topic=topic)) == seen


def test_a_batch_may_end_inside_a_gap(
    spark: SparkSession, broker_bootstrap: str, compacted: tuple[str, list[Record], EndOffset]
) -> None:
    topic, seen, _ = compacted
    before, after = _widest_gap(seen)
    for end in (before + 1, before + 2, (before + after) // 2, after, after + 1):
        source = TopicSource(
            broker_bootstrap, topic=topic, ending_offsets=json.dumps({topic: {"0": end}})
        )
        assert _batch(spark, source) == [record for record in seen if record.offset < end]


def test_a_batch_may_lie_inside_a_gap_as_a_whole(
    spark: SparkSession, broker_bootstrap: str, compacted: tuple[str, list[Record], EndOffset]
) -> None:
    topic, seen, _ = compacted
    before, after = _widest_gap(seen)
    source = TopicSource(
        broker_bootstrap,
        topic=topic,
        starting_offsets=json.dumps({topic: {"0": before + 10}}),
        ending_offsets=json.dumps({topic: {"0": after - 10}}),
    )
    assert _batch(spark, source) == []


@pytest.mark.parametrize("max_offsets", [None, 150])
def test_a_stream_reads_to_the_end_and_continues_after_a_restart(
    spark: SparkSession,
    broker_bootstrap: str,
    compacted: tuple[str, list[Record], EndOffset],
    tmp_path: Path,
    max_offsets: int | None,
) -> None:
    topic, seen, end = compacted
    source = TopicSource(broker_bootstrap, topic=topic, max_offsets_per_trigger=max_offsets)
    job = LatestJob(source, str(tmp_path / "table"), str(tmp_path / "checkpoint"), True)
    batches: list[int] = []
    wait(start(spark, job, lambda batch_id, keys: batches.append(batch_id)))
    assert as_table(read_table(spark, job.table).collect()) == latest(seen)
    assert _checkpoint_offset(Path(job.checkpoint), topic) == end
    if max_offsets is not None:
        assert len(batches) >= end // max_offsets, "offsets of a gap count, so batches are many"
    again: list[int] = []
    wait(start(spark, job, lambda batch_id, keys: again.append(batch_id)))
    assert again == []


@pytest.mark.usefixtures("transactions")
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_a_topic_that_ends_in_a_transaction_marker_is_read_to_its_end(
    spark: SparkSession, broker_bootstrap: str, tmp_path: Path, isolation: str, ending: str
) -> None:
    topic = _create(broker_bootstrap, {})
    _transaction(broker_bootstrap, topic, first=0, commit=True)
    _transaction(broker_bootstrap, topic, first=10, commit=ending == "commit")
    end = _end_offset(broker_bootstrap, topic)
    assert end == 22, "ten records and a marker, twice over"
    visible = 20 if ending == "commit" or isolation == "read_uncommitted" else 10
    source = TopicSource(
        broker_bootstrap, topic=topic, options={"kafka.isolation.level": isolation}
    )
    assert [record.value for record in _batch(spark, source)] == [
        b"%d" % number for number in range(visible)
    ]
    job = LatestJob(source, str(tmp_path / "table"), str(tmp_path / "checkpoint"), True)
    wait(start(spark, job, lambda batch_id, keys: None))
    assert read_table(spark, job.table).count() == visible
    assert _checkpoint_offset(Path(job.checkpoint), topic) == end


def test_a_topic_whose_last_records_were_cleaned_away_is_read_to_its_end(
    spark: SparkSession, broker_bootstrap: str, tmp_path: Path
) -> None:
    """The lag begins a new segment without an append: then the cleaner reaches the very end."""
    if "ODRADEK_TEST_BOOTSTRAP" in environ:
        pytest.skip("Kafka cleans no record that nothing was appended after")
    from kafka import KafkaProducer

    at_once = {"max.compaction.lag.ms": "200", "delete.retention.ms": "0"}
    topic = _create(broker_bootstrap, {**COMPACTED, **at_once})
    producer = KafkaProducer(bootstrap_servers=broker_bootstrap, acks="all")
    try:
        for number in range(200):
            producer.send(topic, b"1" if number < 195 else None, key=b"key-%d" % (number % 5))
        producer.flush(timeout=60)
    finally:
        producer.close(timeout=10)
    wait_until(
        lambda: not list(_consume(broker_bootstrap, topic)),
        f"the broker cleans {topic}",
        CLEANING_TIMEOUT_SECONDS,
    )
    # Were nothing left of the last batch, Spark would wait in vain for a record.
    source = TopicSource(
        broker_bootstrap, topic=topic, options={"kafkaConsumer.pollTimeoutMs": "20000"}
    )
    assert _batch(spark, source) == []
    job = LatestJob(source, str(tmp_path / "table"), str(tmp_path / "checkpoint"), True)
    wait(start(spark, job, lambda batch_id, keys: None))
    assert _checkpoint_offset(Path(job.checkpoint), topic) == 200


def _create(bootstrap: str, config: dict[str, str]) -> str:
    from kafka.admin import KafkaAdminClient, NewTopic

    name = f"compacted-{time.time_ns()}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(name, 1, 1, topic_configs=config)])
    finally:
        admin.close()
    return name


def _until_cleaned(bootstrap: str, topic: str, producer: object) -> list[Record]:
    """Wait for gaps and then for quiet; return what a consumer sees.

    A segment rolls only when something is appended after its time, so each look appends one.
    """
    deadline = time.monotonic() + CLEANING_TIMEOUT_SECONDS
    before: list[Record] = []
    while time.monotonic() < deadline:
        seen = list(_consume(bootstrap, topic))
        if len(seen) < 2:
            continue
        first, last = _widest_gap(seen)
        if last - first <= 100:
            producer.send(topic, b"now", key=b"tick")  # type: ignore[attr-defined]
            producer.flush(timeout=60)  # type: ignore[attr-defined]
        elif seen == before:
            return seen
        before = seen
    pytest.fail(f"the broker has not cleaned {topic} in {CLEANING_TIMEOUT_SECONDS} s")


def _consume(bootstrap: str, topic: str) -> Iterator[Record]:
    """Read a topic from its beginning to its end with kafka-python."""
    from kafka import KafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        deadline = time.monotonic() + 60
        while consumer.position(partition) < end and time.monotonic() < deadline:
            for batch in consumer.poll(timeout_ms=1000).values():
                for one in batch:
                    yield Record(topic, 0, one.offset, one.key, one.value)
    finally:
        consumer.close()


def _end_offset(bootstrap: str, topic: str) -> EndOffset:
    from kafka import KafkaConsumer, TopicPartition

    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        end: EndOffset = consumer.end_offsets([partition])[partition]
        return end
    finally:
        consumer.close()


def _transaction(bootstrap: str, topic: str, first: int, commit: bool) -> None:
    """Produce ten records in a transaction."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.send(topic, b"%d" % number, key=b"%d" % number, partition=0)
        producer.flush(timeout=60)
        producer.commit_transaction() if commit else producer.abort_transaction()
    finally:
        producer.close(timeout=10)


def _batch(spark: SparkSession, source: TopicSource) -> list[Record]:
    return [as_record(row) for row in read_rows(spark, source, None, 1_000_000)]


def _widest_gap(seen: list[Record]) -> tuple[int, int]:
    """Return the offsets on both sides of the widest gap."""
    offsets = [record.offset for record in seen]
    return max(itertools.pairwise(offsets), key=lambda pair: pair[1] - pair[0])


def _checkpoint_offset(checkpoint: Path, topic: str) -> EndOffset:
    """Read the offset that the newest batch of a checkpoint ended at.

    A file of the offset log: "v1", the batch's metadata, then each source's offsets as JSON.
    """
    newest = max((p for p in (checkpoint / "offsets").iterdir() if p.name.isdigit()), key=_number)
    offset: EndOffset = json.loads(newest.read_text().splitlines()[2])[topic]["0"]
    return offset


def _number(path: Path) -> int:
    return int(path.name)
