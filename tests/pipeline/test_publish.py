"""A table is published into a compacted topic, as a new user would do it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from bench.processes import ROOT
from odradek.pipeline.keyed import Keyed
from odradek.pipeline.origin import TableSource, Tickets
from odradek.pipeline.publishing import PublishJob, Sent, prepare, send
from odradek.pipeline.read import read_rows
from odradek.pipeline.source import TopicSource
from odradek.protocol.partitioning import partition_of_key
from tests.pipeline.conftest import CACHE, MakeTopic, Produce
from tests.pipeline.model import Record, as_record, latest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 4
ROWS = [(number, f"ticket {number}", None if number % 3 else "x") for number in range(50)]


@pytest.fixture
def source(broker_bootstrap: str, make_topic: MakeTopic) -> TopicSource:
    """An empty compacted topic."""
    topic = make_topic(PARTITIONS, **{"cleanup.policy": "compact"})
    return TopicSource(broker_bootstrap, topic=topic)


@pytest.mark.parametrize("format_", ["parquet", "csv", "jdbc", "json"])
def test_each_row_becomes_a_record_in_the_partition_that_java_would_choose(
    spark: SparkSession, source: TopicSource, tmp_path: Path, format_: str
) -> None:
    table = spark.createDataFrame(ROWS, "id int, subject string, note string")
    path, options = str(tmp_path / f"table.{format_}"), {}
    if format_ == "jdbc":
        path, options = f"jdbc:derby:{tmp_path}/db;create=true", {"dbtable": "tickets"}
        table.write.jdbc(path, "tickets")
    elif format_ == "csv":
        table.write.csv(path, header=True)
    else:
        table.write.format(format_).save(path)
    given = format_ if format_ == "json" else ""
    origin = TableSource(path, given, options)
    _publish(spark, PublishJob(source, origin, Keyed(["id"]), str(tmp_path / "work")))
    records = _read(spark, source)
    assert {
        record.key: {name.lower(): cell for name, cell in json.loads(record.value or b"").items()}
        for record in records
    } == {
        b"%d" % number: {"id": number, "subject": subject, "note": note}
        for number, subject, note in ROWS
    }
    assert len(records) == len(ROWS)
    for record in records:
        assert record.partition == partition_of_key(record.key or b"", PARTITIONS)


def test_a_publication_that_was_stopped_goes_on_with_what_it_began_with(
    spark: SparkSession, source: TopicSource, tmp_path: Path
) -> None:
    work = str(tmp_path / "work")
    job = PublishJob(source, Tickets(1000, 300), Keyed(["id"]), work, chunk_records=100)
    publication, goes_on = prepare(spark, job)
    assert not goes_on
    asked, progress = threading.Event(), list[Sent]()

    def stop_after_three(sent: Sent) -> None:
        progress.append(sent)
        if len(progress) == 3:
            asked.set()

    assert not send(spark, job, publication, stop_after_three, asked)
    sent = len(_read(spark, source))
    assert sent == progress[-1].records_in_all < 1000
    # Another table now: what was begun is finished first.
    job = PublishJob(source, Tickets(1000, 300, version=2), Keyed(["id"]), work)
    publication, goes_on = prepare(spark, job)
    assert goes_on
    assert send(spark, job, publication, progress.append, threading.Event())
    assert progress[-1].records == 1000 - sent
    assert progress[-1].records_in_all == 1000
    values = [json.loads(record.value or b"") for record in _read(spark, source)]
    assert sorted(value["id"] for value in values) == list(range(1, 1001))
    assert {value["version"] for value in values} == {1}
    assert not prepare(spark, job)[1]


@pytest.mark.interop
def test_a_publication_that_was_killed_ends_with_every_key(
    spark: SparkSession, source: TopicSource, tmp_path: Path
) -> None:
    command = [
        *(sys.executable, "-m", "odradek.pipeline.publish", "--topic", str(source.topic)),
        *("--bootstrap-servers", source.bootstrap_servers, "--work", str(tmp_path / "work")),
        *("--tickets", "400", "--bytes", "300", "--records-per-second", "100"),
        *("--cache", str(CACHE)),
    ]
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    for line in first.stdout:
        if line.startswith("published"):
            first.send_signal(signal.SIGKILL)
    assert first.wait(60) == -signal.SIGKILL
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout.startswith("continuing with 400 records")
    assert "published 400 of 400 records (100.0 %)" in second.stdout
    records = _read(spark, source)
    assert {key[2] for key in latest(records)} == {b"%d" % number for number in range(1, 401)}
    # At most the chunk that the kill fell into was sent again.
    assert len(records) <= 400 + 2 * 100


def test_no_more_records_a_second_are_sent_than_asked_for(
    spark: SparkSession, source: TopicSource, tmp_path: Path
) -> None:
    work = str(tmp_path / "work")
    job = PublishJob(source, Tickets(300, 200), Keyed(["id"]), work, records_per_second=100)
    progress = _publish(spark, job)
    assert len(progress) > 1
    for sent in progress:
        assert sent.records <= 100 * sent.seconds + 1


def test_rows_are_deleted_by_a_condition_and_keys_by_their_absence(
    spark: SparkSession, source: TopicSource, produce: Produce, tmp_path: Path
) -> None:
    assert source.topic is not None
    gone, back = b"gone", b"5"
    for key, value in ((gone, b"x"), (back, b"x"), (b"deleted before", None)):
        partition = partition_of_key(key, PARTITIONS)
        produce(source.topic, [(partition, key, value, [])])
    path = str(tmp_path / "table")
    spark.createDataFrame(ROWS, "id int, subject string, note string").write.parquet(path)
    keyed = Keyed(["id"], deleted_where="note = 'x'")
    job = PublishJob(source, TableSource(path), keyed, str(tmp_path / "work"), delete_missing=True)
    _publish(spark, job)
    records = _read(spark, source)
    tombstones = sorted(record.key or b"" for record in records if record.value is None)
    noted = sorted(b"%d" % number for number, _, note in ROWS if note)
    assert tombstones == sorted([*noted, gone, b"deleted before"])
    assert {key[2] for key in latest(records)} == {
        b"%d" % number for number, _, note in ROWS if not note
    }


def _publish(spark: SparkSession, job: PublishJob) -> list[Sent]:
    progress = list[Sent]()
    assert send(spark, job, prepare(spark, job)[0], progress.append, threading.Event())
    return progress


def _read(spark: SparkSession, source: TopicSource) -> list[Record]:
    return [as_record(row) for row in read_rows(spark, source, None, 100_000)]
