"""Spark reads a broker's files as it reads the broker: Odradek's, and Apache Kafka's."""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from click.testing import CliRunner
from pyspark.errors import PySparkException

from bench.processes import ROOT, KafkaProcess, OdradekProcess
from odradek.pipeline.errors import PipelineError, explain
from odradek.pipeline.segment_columns import COLUMNS
from odradek.pipeline.segment_source import read_segments
from odradek.pipeline.segments import describe, segments_command
from odradek.pipeline.source import RECORD_COLUMNS, TopicSource, read_batch
from odradek.protocol.batches import HEADER_SIZE, Record, encode_batch
from tests.pipeline.segments import read, write_segment
from tests.support.forking import ForkedOdradek
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
# Far longer than a cleaning takes; a broker that does not clean fails here and says so.
CLEANING_TIMEOUT_S = 90


@dataclass(frozen=True)
class Topic:
    """A topic, the broker that has it, and the folder where its files are."""

    bootstrap: str
    folder: Path
    name: str


@pytest.fixture(scope="module")
def odradek(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekProcess]:
    """Odradek, with a cleaner that is quick to work."""
    settings = {"log.cleaner.backoff.ms": "500", "log.cleaner.dedupe.buffer.size": "8000000"}
    broker = ForkedOdradek(tmp_path_factory.mktemp("segments"), settings)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def mixed(odradek: OdradekProcess) -> Topic:
    """A topic of all that a producer may write."""
    return fill(odradek)


@pytest.fixture(scope="module")
def copied(mixed: Topic, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the topic's folders, to be damaged."""
    where = tmp_path_factory.mktemp("copy")
    for folder in mixed.folder.glob(f"{mixed.name}-*"):
        shutil.copytree(folder, where / folder.name)
    return where


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_files_hold_what_the_broker_serves(
    spark: SparkSession, mixed: Topic, isolation: str
) -> None:
    assert_same_as_served(spark, mixed, isolation)


@pytest.mark.kafka
def test_apache_kafkas_files_hold_what_it_serves(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kafka = KafkaProcess(tmp_path_factory.mktemp("kafka"))
    kafka.start()
    try:
        topic = fill(kafka)
        for isolation in ("read_uncommitted", "read_committed"):
            assert_same_as_served(spark, topic, isolation)
    finally:
        kafka.stop()


def test_the_files_of_a_compacted_topic_hold_what_cleaning_left(
    spark: SparkSession, odradek: OdradekProcess
) -> None:
    from kafka import KafkaProducer

    config = {"cleanup.policy": "compact", "segment.ms": "200"}
    name = create(odradek.bootstrap, 1, {**config, "min.cleanable.dirty.ratio": "0.01"})
    topic = Topic(odradek.bootstrap, odradek.data, name)
    producer = KafkaProducer(bootstrap_servers=odradek.bootstrap, acks="all", linger_ms=5)

    def is_cleaned() -> bool:
        producer.send(name, b"now", key=b"tick")  # a segment rolls when something is appended
        producer.flush(timeout=60)
        with contextlib.suppress(PipelineError):  # files are being exchanged
            return len(read(topic.folder, topic=name, columns="offset")) < 500
        return False

    try:
        for number in range(1000):
            value = b"%d" % number if number % 50 else None
            producer.send(name, value, key=b"key-%d" % (number % 60))
        wait_until(is_cleaned, "the broker cleans", CLEANING_TIMEOUT_S, pause_max_s=0.2)
    finally:
        producer.close(timeout=10)

    def is_stored_as_served() -> bool:
        with contextlib.suppress(PySparkException):  # files are being exchanged
            return as_served(spark, topic) == as_stored(spark, topic)
        return False

    # A cleaning in between makes them differ, so it is looked again.
    wait_until(is_stored_as_served, "all is stored as it is served", CLEANING_TIMEOUT_S)


def test_columns_can_be_chosen_and_rows_filtered(spark: SparkSession, mixed: Topic) -> None:
    path = str(mixed.folder / f"{mixed.name}-0")
    everything = read_segments(spark, path=path)
    assert everything.columns == list(COLUMNS)
    # A setting of PySpark 4.1 and later; without it, as in all other tests, Spark filters.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    condition = f"topic = '{mixed.name}' AND offset BETWEEN 50 AND 70 AND timestamp > '2020-01-01'"
    assert {row["offset"] for row in everything.where(condition).collect()} == set(range(50, 71))
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    few = read_segments(spark, path=path, columns="value_size_bytes,topic")
    assert few.columns == ["value_size_bytes", "topic"]
    assert few.where("value_size_bytes IS NULL").count() > 0
    by_schema = spark.read.format("odradek-segments").schema("offset BIGINT, key BINARY")
    assert by_schema.load(path).where("key IS NULL").count() > 0
    with pytest.raises(PySparkException, match="no column offset of type int: its type is bigint"):
        spark.read.format("odradek-segments").schema("offset INT").load(path).count()


def test_control_records_come_when_asked_for(spark: SparkSession, mixed: Topic) -> None:
    options = {"path": str(mixed.folder), "topic": mixed.name, "includeControl": "true"}
    markers = read_segments(spark, **options).where("control").select("transactional", "aborted")
    assert sorted(map(tuple, markers.distinct().collect())) == [(True, False), (True, True)]


def test_data_that_cannot_be_read_is_reported_in_one_line_through_spark(
    spark: SparkSession, mixed: Topic, copied: Path
) -> None:
    damaged = next(iter(sorted((copied / f"{mixed.name}-1").glob("*.log"))))
    content = bytearray(damaged.read_bytes())
    content[HEADER_SIZE + 3] ^= 1  # in the first batch, however few records it has
    damaged.write_bytes(content)
    for options, beginning in (
        ({"path": "/nowhere"}, "/nowhere does not exist"),
        ({"path": str(copied), "topic": "another"}, "topic another is not in"),
        ({"path": str(copied), "onDamage": "mend"}, "option onDamage: 'mend' is none of"),
        ({"path": str(copied)}, f"{damaged} is damaged at position 0, offset 0: a batch's CRC"),
    ):
        with pytest.raises(PySparkException) as error:
            read_segments(spark, **options).count()
        line = explain(error.value, where="somewhere", what="something")
        assert line.startswith(beginning)
        assert "\n" not in line
    whole = read_segments(spark, path=str(mixed.folder), topic=mixed.name).count()
    left = read_segments(spark, path=str(copied), onDamage="skip").count()
    reported = read_segments(spark, path=str(copied), onDamage="report")
    assert 0 < left < whole
    assert reported.where("damage IS NULL").count() == left
    lines, damage = describe(spark, {"path": str(copied)})
    assert len(lines) == 3
    assert damage == [
        f"{damaged} is damaged at position 0, offset 0: "
        "a batch's CRC does not match its bytes"
    ]


def test_a_topics_contents_are_shown_as_a_table(spark: SparkSession, tmp_path: Path) -> None:
    records = [Record(at, 1_700_000_000_000 + at, b"k", b"v" * at or None) for at in range(4)]
    batches = [encode_batch(records[:3]), encode_batch(records[3:], base_offset=3)]
    write_segment(tmp_path / "orders-0", 0, batches[:1])
    write_segment(tmp_path / "orders-0", 3, batches[1:])
    write_segment(tmp_path / "orders-1", 0, [])
    lines, damage = describe(spark, {"path": str(tmp_path)})
    assert damage == []
    headings, *rows = (line.split("  ") for line in lines)
    assert [cell.strip() for cell in headings if cell.strip()][:3] == [
        "topic", "partition", "segments",
    ]  # fmt: skip
    size = str(sum(map(len, batches)))
    assert [" ".join(row).split() for row in rows] == [
        ["orders", "0", "2", "2", "4", "1", size, "0", "3", "2023-11-14", "22:13:20.000",
         "2023-11-14", "22:13:20.003", "none"],
        ["orders", "1", "1", "0", "0", "0", "0", *"-----"],
    ]  # fmt: skip


def test_the_command_reports_a_missing_path_before_spark_starts(tmp_path: Path) -> None:
    result = CliRunner().invoke(segments_command, ["--path", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert result.output == f"Error: {tmp_path}/nowhere does not exist: change option path\n"


@pytest.mark.interop
def test_the_command_runs_from_anywhere(tmp_path: Path) -> None:
    write_segment(tmp_path / "data" / "orders-0", 0, [encode_batch([Record(0, 1, b"k", b"v")])])
    done = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "pipeline", "segments", "--path", "data"],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == [["orders", "0"]]


def assert_same_as_served(spark: SparkSession, topic: Topic, isolation: str) -> None:
    served, stored = as_served(spark, topic, isolation), as_stored(spark, topic, isolation)
    assert len(served) > 500
    assert stored == served


def as_served(
    spark: SparkSession, topic: Topic, isolation: str = "read_uncommitted"
) -> list[tuple[Any, ...]]:
    """Read the topic from the broker."""
    options = {"kafka.isolation.level": isolation}
    return rows(read_batch(spark, TopicSource(topic.bootstrap, topic=topic.name, options=options)))


def as_stored(
    spark: SparkSession, topic: Topic, isolation: str = "read_uncommitted"
) -> list[tuple[Any, ...]]:
    """Read the topic from its files; a cleaner that is at work there is waited for."""
    for _ in range(20):
        try:
            found = read_segments(
                spark, path=str(topic.folder), topic=topic.name, isolation=isolation
            )
            return rows(found)
        except PySparkException as error:
            if "run it again" not in str(error):
                raise
    raise AssertionError("no quiet moment")


def rows(records: DataFrame) -> list[tuple[Any, ...]]:
    """Return records in the order of the log, as Python compares them."""
    found = records.select(*RECORD_COLUMNS).orderBy("topic", "partition", "offset").collect()
    return [
        tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row)
        for row in found
    ]


def fill(broker: OdradekProcess | KafkaProcess) -> Topic:
    """Make a topic of two partitions and several segments, with all that producers write."""
    topic = Topic(broker.bootstrap, broker.data, fill_topic(broker.bootstrap))
    files = (topic.folder / f"{topic.name}-0").glob("*.log")
    assert len(list(files)) > 2, "a transaction spans two"
    return topic


def fill_topic(bootstrap: str) -> str:
    """Make a topic of two partitions and several segments; return its name."""
    from kafka import KafkaProducer

    name = create(bootstrap, 2, {"segment.bytes": str(1 << 20)})
    rng = random.Random(1)
    for codec in CODECS:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", linger_ms=20, compression_type=codec
        )
        send(producer, name, rng, 110)
        producer.close(timeout=30)
    for codec in (None, "lz4"):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=f"{name}-{codec}",
            compression_type=codec,
        )
        producer.init_transactions()
        for commits in (True, False, True):
            producer.begin_transaction()
            send(producer, name, rng, 60)
            producer.commit_transaction() if commits else producer.abort_transaction()
        producer.close(timeout=30)
    return name


def send(producer: Any, topic: str, rng: random.Random, count: int) -> None:
    """Send records with and without keys, values and headers, most of them to partition 0."""
    for number in range(count):
        value = rng.choice([None, b"", b"text " * rng.randrange(99), rng.randbytes(20_000)])
        headers: Sequence[tuple[str, bytes]] = (
            [("näme", rng.randbytes(5)), ("empty", b"")] if number % 4 == 0 else []
        )
        key = None if value and number % 7 == 0 else b"key-%d" % rng.randrange(50)
        producer.send(topic, value, key=key, partition=int(number % 9 == 0), headers=headers)
    producer.flush(timeout=60)


def create(bootstrap: str, partitions: int, config: dict[str, str]) -> str:
    """Create a topic of a new name."""
    from kafka.admin import KafkaAdminClient, NewTopic

    name = f"segments-{uuid.uuid4().hex[:12]}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(name, partitions, 1, topic_configs=config)])
    finally:
        admin.close()
    return name
