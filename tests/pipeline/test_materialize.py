"""A topic is kept as a table of either format: one row a key, whatever happens on the way."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from odradek.pipeline.checkpoint import Progress, require_match
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.formats import Format, ValueFormat
from odradek.pipeline.kept_table import Merged
from odradek.pipeline.latest import wait
from odradek.pipeline.materializing import MaterializeJob, apply_batch, start
from odradek.pipeline.source import TopicSource
from odradek.pipeline.table import TABLE_SCHEMA
from tests.pipeline.conftest import MakeTopic, Produce, Produced
from tests.pipeline.model import Record, as_table, latest
from tests.pipeline.tables import KINDS, kept_table, sql_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

WHEN = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
QUERY = "11111111-2222-3333-4444-555555555555"
JSON = ValueFormat(Format.JSON, "id BIGINT, status STRING")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of the table that is kept."""
    return str(request.param)


def _long(*values: bytes) -> Iterator[Any]:
    """Leave values to the long run."""
    return (pytest.param(one, marks=pytest.mark.interop) for one in values)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.interop)])
@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        ("delta", {}),
        ("hadoop", {}),
        ("hadoop", {"write.merge.mode": "merge-on-read"}),
        pytest.param("jdbc", {}, marks=pytest.mark.interop),
    ],
    ids=["delta", "hadoop", "on read", "jdbc"],
)
def test_batches_may_be_applied_again_and_come_to_the_same_table(
    spark: SparkSession, kind: str, properties: dict[str, str], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    job = replace(_job(kind, tmp_path), properties=properties)
    records = [
        Record(
            "t",
            number % 2,
            number,
            None if chance.random() < 0.05 else b"key-%d" % chance.randrange(12),
            None if chance.random() < 0.3 else b"%d" % number,
        )
        for number in range(45)
    ]
    for batch_id in range(3):
        batch = records[batch_id * 15 : (batch_id + 1) * 15]
        progress = Progress(QUERY, batch_id)
        merged = apply_batch(job, _frame(spark, batch), progress)
        before, after = (latest(records[: number * 15]) for number in (batch_id, batch_id + 1))
        changed = {key for key in before.keys() & after if before[key] != after[key]}
        expected = (len(after.keys() - before), len(changed), len(before.keys() - after))
        assert (merged.inserted, merged.updated, merged.deleted) == expected
        if chance.random() < 0.7:
            # What Spark does after a crash, with less in it if the cleaner has been there.
            kept = [one for one in batch if one in latest(batch).values() or one.value is None]
            again = apply_batch(job, _frame(spark, chance.choice([batch, kept])), progress)
            assert again == Merged(0, 0, 0)
        assert job.table.progress(spark) == progress
    assert as_table(job.table.read(spark).collect()) == latest(records)


def test_a_batch_with_nothing_in_it_counts_as_applied(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    job = _job(kind, tmp_path)
    for batch_id in range(2):
        apply_batch(job, _frame(spark, []), Progress(QUERY, batch_id))
        assert job.table.progress(spark) == Progress(QUERY, batch_id)
    assert job.table.read(spark).count() == 0


def test_a_table_may_be_named_by_a_relative_path(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    job = _job(kind, Path(os.path.relpath(tmp_path)))
    for batch_id in range(2):
        progress = Progress(QUERY, batch_id)
        merged = apply_batch(job, _frame(spark, [Record("t", 0, batch_id, b"k", b"v")]), progress)
        assert merged == Merged(1 - batch_id, batch_id, 0)
        assert job.table.progress(spark) == progress
    assert kept_table(kind, tmp_path).read(spark.newSession()).count() == 1


def test_commits_of_others_do_not_hide_how_far_a_table_is(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    job = _job(kind, tmp_path)
    apply_batch(job, _frame(spark, [Record("t", 0, 1, b"k", b"v")]), Progress(QUERY, 3))
    name = sql_name(job.table, spark)
    for number in range(3):
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('user.note' = '{number}')")
        spark.sql(f"UPDATE {name} SET value = X'0{number}'")
    assert job.table.progress(spark) == Progress(QUERY, 3)


def test_a_stream_catches_up_goes_on_and_keeps_headers_and_timestamps(
    spark: SparkSession, broker_bootstrap: str, make_topic: MakeTopic, produce: Produce,
    kind: str, tmp_path: Path,
) -> None:
    topic = make_topic(2, **{"cleanup.policy": "compact"})
    source = TopicSource(broker_bootstrap, topic=topic, max_offsets_per_trigger=15)
    job = _job(kind, tmp_path, source)
    sent: list[Produced] = [
        (number % 2, b"key-%d" % (number % 9), b"%d" % number, [("h", b"%d" % number), ("e", b"")])
        for number in range(24)
    ]
    produce(topic, sent)
    batches = _run(spark, job)
    assert len(batches) > 1
    rows = job.table.read(spark).collect()
    assert as_table(rows) == _expected(topic, sent)
    assert all(abs(row["timestamp"].timestamp() - time.time()) < 600 for row in rows)
    more: list[Produced] = [(0, b"key-0", None, []), (1, b"key-1", b"2", []), (1, b"new", b"", [])]
    produce(topic, more)
    assert [merged for _, merged in _run(spark, job)] == [Merged(1, 1, 1)]
    assert as_table(job.table.read(spark).collect()) == _expected(topic, [*sent, *more])
    assert _run(spark, job) == []


def test_values_are_read_by_a_json_schema(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    job = replace(_job(kind, tmp_path), values=JSON)
    values = [b'{"id": 1, "status": "open"}', b'{"id": 2}', None]
    _apply(spark, job, values)
    assert _values(spark, job) == {b"0": (1, "open"), b"1": (2, None)}


def test_values_are_read_by_an_avro_schema(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import to_avro

    fields = [{"name": "id", "type": "long"}, {"name": "status", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "Ticket", "fields": fields})
    rows = spark.createDataFrame([(1, "open"), (2, "closed")], "id long, status string")
    written = rows.select(to_avro(f.struct("id", "status"), schema)).collect()
    values = [bytes(row[0]) for row in written]
    job = replace(_job(kind, tmp_path), values=ValueFormat(Format.AVRO, schema))
    _apply(spark, job, values)
    assert _values(spark, job) == {b"0": (1, "open"), b"1": (2, "closed")}
    framed = replace(
        _job(kind, tmp_path / "framed"), values=ValueFormat(Format.AVRO, schema, skipped_bytes=5)
    )
    _apply(spark, framed, [b"\0\0\0\0\7" + value for value in values])
    assert _values(spark, framed) == _values(spark, job)


# One field may be null, and is of no bytes but the one that says so.
AVRO = ValueFormat(
    Format.AVRO,
    """{"type": "record", "name": "Ticket", "namespace": "tickets", /* as Avro allows */
        "fields": [{"name": "note", "type": ["null", "string"]}]}""",
)


@pytest.mark.parametrize("bad", [b"\x02\x08ope", *_long(b"", b"\x04", b"\x02", b"no avro")])
def test_a_value_that_is_not_of_the_avro_schema_stops_the_job_with_its_offset(
    spark: SparkSession, kind: str, tmp_path: Path, bad: bytes
) -> None:
    values = [b"\x02\x08open", b"\x00", None, bad]
    job = replace(_job(kind, tmp_path), values=AVRO)
    with pytest.raises(PipelineError, match=r"offset 3 of t-0 does not fit the avro schema"):
        _apply(spark, job, values)
    job = replace(job, keep_mismatched=True)
    _apply(spark, job, values)
    rows = {bytes(row["key"]): row for row in job.table.read(spark).collect()}
    assert {key: row["value"] for key, row in rows.items()} == {
        b"0": ("open",),
        b"1": (None,),
        b"3": None,
    }
    assert [rows[key]["mismatched"] for key in (b"0", b"1", b"3")] == [None, None, bad]


@pytest.mark.parametrize("bad", [b'{"id": "one"}', *_long(b"{", b"no json", b'["id"]', b"")])
def test_a_value_that_does_not_fit_the_schema_stops_the_job_with_its_offset(
    spark: SparkSession, kind: str, tmp_path: Path, bad: bytes
) -> None:
    job = replace(_job(kind, tmp_path), values=JSON)
    with pytest.raises(PipelineError, match=r"offset 1 of t-0 does not fit the json schema"):
        _apply(spark, job, [b'{"id": 1}', bad])
    job = replace(job, keep_mismatched=True)
    _apply(spark, job, [b'{"id": 1}', bad, None])
    rows = {bytes(row["key"]): row for row in job.table.read(spark).collect()}
    assert rows[b"0"]["value"]["id"] == 1
    assert rows[b"0"]["mismatched"] is None
    assert rows[b"1"]["value"] is None
    assert bytes(rows[b"1"]["mismatched"]) == bad


def test_an_invalid_schema_is_refused(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    job = replace(_job(kind, tmp_path), values=ValueFormat(Format.JSON, "id BIGNIT"))
    with pytest.raises(PipelineError, match="--schema 'id BIGNIT' is not a Spark schema"):
        _apply(spark, job, [b"{}"])


def test_another_schema_than_the_tables_is_refused(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    _apply(spark, _job(kind, tmp_path), [b"x"])
    with pytest.raises(PipelineError, match="the column value is binary, not struct<id:bigint"):
        _apply(spark, replace(_job(kind, tmp_path), values=JSON), [b'{"id": 1}'])


def test_small_numbers_are_kept_as_the_format_has_them(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    schema = "tiny TINYINT, more STRUCT<list: ARRAY<SMALLINT>, map: MAP<STRING, TINYINT>>"
    job = replace(_job(kind, tmp_path), values=ValueFormat(Format.JSON, schema))
    value = b'{"tiny": -1, "more": {"list": [300], "map": {"a": 2}}}'
    for batch_id in range(2):
        record = Record("t", 0, batch_id, b"k", value)
        merged = apply_batch(job, _frame(spark, [record]), Progress(QUERY, batch_id))
        assert merged == Merged(1 - batch_id, batch_id, 0)
    assert job.table.read(spark).collect()[0]["value"] == (-1, ([300], {"a": 2}))


def test_a_checkpoint_of_another_table_is_refused(
    spark: SparkSession, broker_bootstrap: str, make_topic: MakeTopic, produce: Produce,
    kind: str, tmp_path: Path,
) -> None:
    topic = make_topic(1, **{"cleanup.policy": "compact"})
    source = TopicSource(broker_bootstrap, topic=topic)
    produce(topic, [(0, b"a", b"1", [])])
    job, other = (_job(kind, tmp_path / name, source) for name in ("one", "other"))
    assert len(_run(spark, job)) == 1
    for table, checkpoint in (
        (job.table, other.checkpoint),  # a checkpoint that is new, for a table that is not
        (other.table, job.checkpoint),  # and a new table
    ):
        with pytest.raises(PipelineError, match="a new --table and a new --checkpoint"):
            _run(spark, replace(job, table=table, checkpoint=checkpoint))
    assert len(_run(spark, other)) == 1
    with pytest.raises(PipelineError, match="was written by another job"):
        _run(spark, replace(job, checkpoint=other.checkpoint))
    held = other.table.progress(spark)
    assert held is not None
    other.table.note_batch(spark, Progress(held.query_id, 5))
    with pytest.raises(PipelineError, match=r"holds batch 5 but .* is at batch 0"):
        _run(spark, other)


def test_rows_whose_tombstones_are_gone_are_found_by_reconciling(
    spark: SparkSession, broker_bootstrap: str, make_topic: MakeTopic, produce: Produce,
    kind: str, tmp_path: Path,
) -> None:
    topic = make_topic(1, **{"cleanup.policy": "compact", "delete.retention.ms": "0"})
    job = _job(kind, tmp_path, TopicSource(broker_bootstrap, topic=topic))
    produce(topic, [(0, b"a", b"1", []), (0, b"b", b"1", [])])
    _run(spark, job)
    # The table as if "gone" had been deleted while nobody looked, tombstone and all.
    gone = Record(topic, 0, 0, b"gone", b"1")
    apply_batch(job, _frame(spark, [gone]), job.table.progress(spark) or Progress("", 0))
    with pytest.raises(PipelineError, match="--reconcile"):
        start(spark, job, lambda batch_id, merged: None)
    reconciled = list[int]()
    wait(start(spark, job, lambda batch_id, merged: None, reconciled=reconciled.append))
    assert reconciled == [1]
    assert {key[2] for key in as_table(job.table.read(spark).collect())} == {b"a", b"b"}


@pytest.mark.parametrize(
    ("held", "read"),
    [
        (None, None),
        (None, Progress(QUERY, -1)),
        (Progress(QUERY, 0), Progress(QUERY, -1)),
        (Progress(QUERY, 7), Progress(QUERY, 7)),
        (Progress(QUERY, 8), Progress(QUERY, 7)),
        (Progress(QUERY, -1), Progress(QUERY, 7)),
    ],
)
def test_a_table_and_its_checkpoint_match_after_any_kill(
    held: Progress | None, read: Progress | None
) -> None:
    require_match(held, read, "table", "checkpoint")


@pytest.mark.parametrize(
    ("held", "read"),
    [
        (None, Progress(QUERY, 0)),
        (Progress(QUERY, 0), None),
        (Progress("", -1), Progress(QUERY, 7)),
        (Progress("other", 7), Progress(QUERY, 7)),
        (Progress(QUERY, 6), Progress(QUERY, 7)),
        (Progress(QUERY, 9), Progress(QUERY, 7)),
    ],
)
def test_a_table_and_a_checkpoint_that_would_lose_records_are_refused(
    held: Progress | None, read: Progress | None
) -> None:
    with pytest.raises(PipelineError, match="new --table and a new --checkpoint"):
        require_match(held, read, "table", "checkpoint")


def _job(kind: str, folder: Path, source: TopicSource | None = None) -> MaterializeJob:
    return MaterializeJob(
        source or TopicSource("127.0.0.1:1", topic="t"),
        kept_table(kind, folder),
        str(folder / "checkpoint"),
        available_now=True,
    )


def _run(spark: SparkSession, job: MaterializeJob) -> list[tuple[int, Merged]]:
    merged_batches = list[tuple[int, Merged]]()
    wait(start(spark, job, lambda batch_id, merged: merged_batches.append((batch_id, merged))))
    return merged_batches


def _apply(spark: SparkSession, job: MaterializeJob, values: Sequence[bytes | None]) -> None:
    records = [Record("t", 0, n, b"%d" % n, value) for n, value in enumerate(values)]
    apply_batch(job, _frame(spark, records), Progress(QUERY, 0))


def _frame(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    rows = [(r.key, r.value, r.topic, r.partition, r.offset, WHEN, None) for r in records]
    return spark.createDataFrame(rows, TABLE_SCHEMA)


def _values(spark: SparkSession, job: MaterializeJob) -> dict[bytes, tuple[int, str | None]]:
    rows = job.table.read(spark).collect()
    return {bytes(row["key"]): (row["value"]["id"], row["value"]["status"]) for row in rows}


def _expected(topic: str, sent: Sequence[Produced]) -> dict[tuple[str, int, bytes], Record]:
    offsets = {0: 0, 1: 0}
    records = []
    for partition, key, value, headers in sent:
        records.append(Record(topic, partition, offsets[partition], key, value, tuple(headers)))
        offsets[partition] += 1
    return latest(records)
