"""An audit finds what a broken cleaner would do to a topic, and nothing in a sound one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from click.testing import CliRunner

from bench.processes import ROOT, OdradekProcess
from odradek.pipeline.audit import Report, audit_command, compare, compare_table, find_kept
from odradek.pipeline.guarantees import in_order, order_check
from odradek.pipeline.latest import wait
from odradek.pipeline.materializing import MaterializeJob, start
from odradek.pipeline.reading import BrokerTopic, take
from odradek.pipeline.source import TopicSource
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import Record, encode_batch, iterate_batches
from tests.pipeline.conftest import CACHE
from tests.pipeline.tables import kept_table
from tests.support.forking import ForkedOdradek

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

TOPIC = "tickets"
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
CONFIGS = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(HOUR_MS)}

# What is in each partition: a key's values and its tombstone, by offset.
WRITTEN = ((b"a", b"0"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", b"4"), (b"end", b"5"))


def _without(*offsets: int) -> Callable[[list[Record]], list[Record]]:
    return lambda records: [one for one in records if one.offset not in offsets]


def _move_c(records: list[Record]) -> list[Record]:
    moved = [Record(2, one.timestamp, one.key, one.value) for one in records if one.offset == 4]
    return [*records[:2], *moved, records[3], records[5]]


def _change_c(records: list[Record]) -> list[Record]:
    return [
        Record(one.offset, one.timestamp, one.key, b"other") if one.key == b"c" else one
        for one in records
    ]


# What becomes of a partition, how old its records are, and what an audit must say of it.
DAMAGES = (
    (_without(0, 1), 2 * HOUR_MS, set()),  # a sound cleaning
    (_without(0, 1, 3), YEAR_MS, set()),  # and one that came after delete.retention.ms
    (_without(0, 2), 2 * HOUR_MS, {(2, "a", "its final value is gone")}),
    (
        _without(2),
        2 * HOUR_MS,
        {(2, "a", "its final value is gone, and offset 0's is back")},
    ),
    (_without(3), 2 * HOUR_MS, {(3, "b", "was deleted, and its value of offset 1 is back")}),
    (
        _without(1, 3),
        2 * HOUR_MS,
        {(3, "b", "its tombstone is gone before delete.retention.ms")},
    ),
    (
        _move_c,
        2 * HOUR_MS,
        {
            (2, "a", "its final value is gone, and offset 0's is back"),
            (2, "c", "was at offset 4 and has moved"),
            (4, "c", "its final value is gone, and offset 2's is back"),
        },
    ),
    (_change_c, 2 * HOUR_MS, {(4, "c", "another record was at this offset")}),
    (_without(0), 0, {(0, "a", "was cleaned before min.compaction.lag.ms")}),
)


@pytest.fixture(scope="module")
def damaged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    """A topic that was read, kept as a table, and then damaged."""
    folder = tmp_path_factory.mktemp("audit")
    broker = ForkedOdradek(folder / "broker")
    broker.start()
    try:
        _write(broker.bootstrap)
        yield Damaged(spark, broker, folder)
    finally:
        broker.stop()


class Damaged:
    """A topic before and after it is damaged, with a table that was kept of it."""

    def __init__(self, spark: SparkSession, broker: OdradekProcess, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.source = TopicSource(broker.bootstrap, topic=TOPIC)
        self.jobs = {
            kind: MaterializeJob(
                self.source, kept_table(kind, folder), f"{folder}/{kind}", available_now=True
            )
            for kind in ("delta", "hadoop")
        }
        for job in self.jobs.values():
            wait(start(spark, job, lambda batch_id, merged: None))
        take(spark, BrokerTopic(self.source), f"{folder}/first")
        take(spark, BrokerTopic(self.source), f"{folder}/again")
        broker.stop()
        for partition, (damage, _, _) in enumerate(DAMAGES):
            _rewrite(broker.data / f"{TOPIC}-{partition}", damage)
        broker.start()
        take(spark, BrokerTopic(self.source), f"{folder}/second")

    def compare(self, second: str) -> Report:
        """Compare with the first reading."""
        folder = self.folder
        return compare(self.spark, TOPIC, f"{folder}/first", f"{folder}/{second}", 100)


def test_a_topic_that_nothing_befell_holds(damaged: Damaged) -> None:
    report = damaged.compare("again")
    assert report.held
    assert report.cleaned_between == 0
    records = len(DAMAGES) * len(WRITTEN)
    assert (report.first_records, report.second_records) == (records, records)
    checked = {verdict.name: verdict.checked for verdict in report.verdicts}
    # One partition's tombstone is a year old, and one's records are young.
    assert list(checked.values()) == [3 * 9, 9, 8, records, records, len(WRITTEN)]


def test_each_damage_is_found_with_its_key_and_nothing_else(damaged: Damaged) -> None:
    report = damaged.compare("second")
    assert not report.held
    found = {
        (breach.partition, breach.offset, breach.key, breach.what)
        for verdict in report.verdicts
        for breach in verdict.examples
    }
    expected = {
        (partition, offset, key, what)
        for partition, (_, _, breaches) in enumerate(DAMAGES)
        for offset, key, what in breaches
    }
    assert found == expected
    assert sum(verdict.breaches for verdict in report.verdicts) == len(found)


@pytest.mark.parametrize("kind", ["delta", "hadoop"])
def test_a_table_is_held_against_the_topic_that_it_was_kept_of(
    damaged: Damaged, kind: str
) -> None:
    job = damaged.jobs[kind]
    kept = find_kept(damaged.spark, TOPIC, job.table, job.checkpoint)
    sound = compare_table(damaged.spark, TOPIC, kept, f"{damaged.folder}/first", 100)
    assert sound.held
    report = compare_table(damaged.spark, TOPIC, kept, f"{damaged.folder}/second", 100)
    found = {
        (breach.partition, breach.key)
        for verdict in report.verdicts
        for breach in verdict.examples
    }
    # Partition 5 lacks a tombstone and 8 an old value, of which a table knows nothing.
    assert found == {
        (2, "a"), (3, "a"), (4, "b"), (6, "a"), (6, "c"), (7, "c")
    }


def test_records_that_come_out_of_order_are_found(spark: SparkSession) -> None:
    columns = "partition int, offset bigint, key binary, arrival bigint"
    task = 1 << 33
    rows = [(0, 5, b"k", 0), (0, 7, b"k", 1), (0, 6, b"l", 2), (1, 1, b"k", 3), (0, 2, b"k", task)]
    found = in_order(spark.createDataFrame(rows, columns)).select("offset", order_check().what)
    assert [tuple(row) for row in found.collect() if row[1]] == [(6, "came after offset 7")]


@pytest.mark.interop
def test_the_command_reports_in_text_and_json_and_exits_with_1(damaged: Damaged) -> None:
    report_file = damaged.folder / "report.json"
    command = [
        *(sys.executable, "-m", "odradek.pipeline.audit", "--topic", TOPIC),
        *("--bootstrap-servers", damaged.source.bootstrap_servers),
        *("--against", f"{damaged.folder}/first", "--report", str(report_file)),
        *("--cache", str(CACHE), "--examples", "1"),
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stderr) == (1, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("topic tickets: 54 records at ")
    assert any(line.startswith("BROKEN  the final value of every key is there") for line in lines)
    assert any(line.startswith("held    the order has not changed") for line in lines)
    assert any("tickets-4 offset 3 key b: was deleted" in line for line in lines)
    report = json.loads(report_file.read_text())
    assert report["held"] is False
    assert report["verdicts"][1]["examples"][0]["key"] == "b"


def test_one_way_to_compare_is_asked_for() -> None:
    result = CliRunner().invoke(audit_command, ["--topic", "a", "--table", "b", "--against", "c"])
    assert result.exit_code == 2
    assert "one of --against, --wait-seconds and --table" in result.output


def _write(bootstrap: str) -> None:
    from kafka import KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(TOPIC, len(DAMAGES), 1, topic_configs=CONFIGS)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    now_ms = int(time.time() * 1000)
    for partition, (_, age_ms, _) in enumerate(DAMAGES):
        for key, value in WRITTEN:
            producer.send(TOPIC, value, key, partition=partition, timestamp_ms=now_ms - age_ms)
    producer.flush(timeout=60)
    producer.close(timeout=10)


def _rewrite(folder: Path, damage: Callable[[list[Record]], list[Record]]) -> None:
    """Write a partition's only segment again, each record as a batch of its own."""
    (segment,) = folder.glob("*.log")
    data = segment.read_bytes()
    records = [one for at, _ in iterate_batches(data) for one in decode_records(data, at)]
    segment.write_bytes(
        b"".join(encode_batch([one], base_offset=one.offset) for one in damage(records))
    )
    for other in folder.iterdir():
        if other.suffix in (".index", ".timeindex", ".snapshot"):
            other.unlink()
