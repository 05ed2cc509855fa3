"""Spark reads shared topics from the bucket as it reads them from the brokers."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from click.testing import CliRunner
from pyspark.errors import PySparkException

from odradek.pipeline.audit import compare
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.reading import take
from odradek.pipeline.segment_source import SegmentsDataSource, read_segments
from odradek.pipeline.segments import describe, segments_command
from odradek.pipeline.shared_reading import SharedTopic
from odradek.pipeline.source import RECORD_COLUMNS
from tests.broker.clusters import ThreeSharingBrokers
from tests.pipeline.test_segments import Topic, as_served, create, fill_topic, rows, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def brokers(sharing_brokers: ThreeSharingBrokers) -> ThreeSharingBrokers:
    """Three brokers that clean often, and store what they have soon."""
    return sharing_brokers


@pytest.fixture(scope="module")
def source(brokers: ThreeSharingBrokers) -> dict[str, str]:
    """The options of the data source that lead to the cluster."""
    bucket = brokers.settings["odradek.object.store.url"]
    return {
        "catalog": brokers.settings["odradek.catalog.url"],
        "odradek.object.store.url": bucket,
    }


@pytest.fixture(scope="module")
def mixed(brokers: ThreeSharingBrokers) -> str:
    """A topic of all that a producer may write."""
    return fill_topic(brokers.bootstrap)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_bucket_holds_what_the_brokers_serve(
    spark: SparkSession,
    brokers: ThreeSharingBrokers,
    source: dict[str, str],
    mixed: str,
    isolation: str,
) -> None:
    served = as_served(spark, Topic(brokers.bootstrap, Path(), mixed), isolation)
    assert len(served) > 500
    found = read_segments(spark, topic=mixed, isolation=isolation, **source)
    assert rows(found) == served


def test_a_compacted_topic_is_read_while_it_is_cleaned(
    spark: SparkSession, brokers: ThreeSharingBrokers, source: dict[str, str]
) -> None:
    from kafka import KafkaProducer

    config = {
        "cleanup.policy": "compact",
        "segment.ms": "200",
        "min.cleanable.dirty.ratio": "0.01",
    }
    name = create(brokers.bootstrap, 1, config)
    producer = KafkaProducer(bootstrap_servers=brokers.bootstrap, acks="all", linger_ms=5)
    values = {}

    def offsets() -> int:
        return read_segments(spark, topic=name, columns="offset", **source).count()

    def is_cleaned() -> bool:
        producer.send(name, b"now", key=b"tick")  # a segment rolls when something is appended
        producer.flush(timeout=60)
        return offsets() < 500

    try:
        for number in range(1000):
            key, value = b"key-%d" % (number % 60), b"%d" % number
            producer.send(name, value, key=key)
            values[key] = value
        producer.flush(timeout=60)
        wait_until(is_cleaned, "the broker cleans", 90, pause_max_s=0.2)
    finally:
        producer.close(timeout=10)
    values[b"tick"] = b"now"
    found = rows(read_segments(spark, topic=name, **source).orderBy("offset"))
    assert {row[0]: row[1] for row in found} == values
    of_one = rows(read_segments(spark, topic=name, key="key-7", **source))
    assert of_one == [row for row in found if row[0] == b"key-7"]


def test_a_stream_into_a_table_has_each_record_once(
    spark: SparkSession, brokers: ThreeSharingBrokers, source: dict[str, str], tmp_path: Path
) -> None:
    from kafka import KafkaProducer

    name = create(brokers.bootstrap, 3, {})
    producer = KafkaProducer(bootstrap_servers=brokers.bootstrap, acks="all", linger_ms=5)
    table = str(tmp_path / "table")

    def stream() -> StreamingQuery:
        return (
            spark.readStream.format("odradek-segments")
            .options(topic=name, isolation="read_committed", **source)
            .load()
            .select(*RECORD_COLUMNS)
            .writeStream.format("delta")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="0 seconds")
            .start(table)
        )

    def write(first: int) -> None:
        for number in range(first, first + 400):
            producer.send(name, b"%d" % number, key=b"%d" % (number % 50))
        producer.flush(timeout=60)

    def count() -> int:
        with contextlib.suppress(PySparkException):  # there is no table yet
            return spark.read.format("delta").load(table).count()
        return 0

    spark.dataSource.register(SegmentsDataSource)
    try:
        for first in (0, 400, 800):
            query = stream()
            write(first)
            # The query goes on where the one before stopped, wherever that was.
            wait_until(lambda first=first: count() > first, "records arrive", 120, pause_max_s=1)
            query.stop()
        query = stream()
        wait_until(lambda: count() >= 1200, "all records arrive", 120, pause_max_s=1)
        query.stop()
    finally:
        producer.close(timeout=10)
    served = as_served(spark, Topic(brokers.bootstrap, Path(), name))
    assert len(served) == 1200
    assert rows(spark.read.format("delta").load(table)) == served


def test_shared_topics_are_shown_as_a_table(
    spark: SparkSession, source: dict[str, str], mixed: str
) -> None:
    lines, damage = describe(spark, {**source, "topic": mixed})
    assert damage == []
    assert [line.split()[:2] for line in lines[1:]] == [[mixed, "0"], [mixed, "1"]]


def test_the_command_finds_the_catalog_by_the_brokers_settings(
    source: dict[str, str], tmp_path: Path
) -> None:
    store = f"odradek.object.store.url={source['odradek.object.store.url']}"
    config = tmp_path / "server.properties"
    config.write_text(f"odradek.catalog.url={source['catalog']}\n{store}\n")
    for given in (
        ["--config", str(config)],
        ["--catalog", source["catalog"], "--set", store],
    ):
        result = CliRunner().invoke(segments_command, [*given, "--topic", "gone"])
        assert result.output.startswith("Error: topic gone is not in the catalog: there are ")


def test_an_audit_reads_the_bucket_alone(
    spark: SparkSession, brokers: ThreeSharingBrokers, source: dict[str, str], tmp_path: Path
) -> None:
    """Each guarantee is checked between two readings, of which a cleaning comes in between."""
    from kafka import KafkaProducer

    config = {
        "cleanup.policy": "compact",
        "segment.ms": "200",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "7200000",
    }
    name = create(brokers.bootstrap, 2, config)
    topic = SharedTopic(name, source)
    producer = KafkaProducer(
        bootstrap_servers=brokers.bootstrap, acks="all", transactional_id="audited"
    )
    producer.init_transactions()

    def write(count: int) -> None:
        producer.begin_transaction()
        for number in range(count):
            producer.send(name, b"%d" % number if number % 9 else None, key=b"%d" % (number % 70))
        producer.commit_transaction()

    try:
        write(500)
        first = take(spark, topic, f"{tmp_path}/first")
        assert first.delete_retention_ms == 7_200_000
        assert first.ends == as_of_broker(brokers, name)

        def is_cleaned() -> bool:
            write(1)  # a segment rolls when something is appended
            return read_segments(spark, topic=name, columns="offset", **source).count() < 300

        wait_until(is_cleaned, "the broker cleans", 90, pause_max_s=0.2)
    finally:
        producer.close(timeout=10)
    take(spark, topic, f"{tmp_path}/second")
    report = compare(spark, name, f"{tmp_path}/first", f"{tmp_path}/second", 10)
    assert report.held, report
    assert report.cleaned_between > 100
    assert all(verdict.checked for verdict in report.verdicts if "its time" not in verdict.name)
    with pytest.raises(PipelineError, match=r"has cleanup\.policy=delete: set cleanup"):
        SharedTopic(create(brokers.bootstrap, 1, {}), source).begin(spark)


def as_of_broker(brokers: ThreeSharingBrokers, name: str) -> dict[int, int]:
    """Return the last stable offsets by a consumer."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=brokers.bootstrap, isolation_level="read_committed"
    )
    try:
        found = consumer.end_offsets([TopicPartition(name, number) for number in (0, 1)])
        return {one.partition: offset for one, offset in found.items()}
    finally:
        consumer.close()
