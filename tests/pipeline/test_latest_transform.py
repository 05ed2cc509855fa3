"""The latest value per key, as a function of rows: no broker, no files."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.pipeline.latest import merge
from odradek.pipeline.per_key import latest_per_key
from odradek.pipeline.table import TABLE_SCHEMA
from tests.pipeline.model import Record, as_table, latest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEYS = st.sampled_from([b"", b"a", b"b", b"\x00", b"\xff\xfe", b"key"]) | st.none()
VALUES = st.sampled_from([b"", b"1", b"\x80"]) | st.none()
HEADERS = st.lists(st.tuples(st.sampled_from(["h", ""]), st.binary(max_size=2)), max_size=2)


@st.composite
def _histories(draw: st.DrawFn, topic: str) -> list[Record]:
    """A topic's records in two partitions, with gaps between their offsets."""
    offsets = [draw(st.integers(0, 5)), draw(st.integers(0, 2**40))]
    records = []
    for _ in range(draw(st.integers(0, 25))):
        partition = draw(st.integers(0, 1))
        offsets[partition] += draw(st.integers(1, 4))
        headers = tuple(draw(HEADERS))
        key, value = draw(KEYS), draw(VALUES)
        records.append(Record(topic, partition, offsets[partition], key, value, headers))
    return records


# Each job of Spark takes a good part of a second, so each example holds many topics at once.
@st.composite
def _many_histories(draw: st.DrawFn) -> list[list[Record]]:
    return [draw(_histories(f"topic-{number}")) for number in range(30)]


_few = settings(max_examples=4, suppress_health_check=list(HealthCheck))


@_few
@given(histories=_many_histories(), data=st.data())
def test_it_is_the_dict_that_the_records_build(
    spark: SparkSession, histories: list[list[Record]], data: st.DataObject
) -> None:
    records = [record for history in histories for record in history]
    shuffled = data.draw(st.permutations(records))
    assert as_table(latest_per_key(_frame(spark, shuffled)).collect()) == latest(records)


@_few
@given(histories=_many_histories(), data=st.data())
def test_merging_batches_comes_to_the_same_as_the_whole(
    spark: SparkSession, histories: list[list[Record]], data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, 25), min_size=2, max_size=2).map(sorted))
    bounds = [0, *cuts, 25]
    table = _frame(spark, [])
    for start, end in itertools.pairwise(bounds):
        batch = _frame(spark, [r for history in histories for r in history[start:end]])
        table = merge(table, batch)
    assert as_table(table.collect()) == latest(r for history in histories for r in history)


def test_a_batch_that_is_applied_twice_changes_nothing(spark: SparkSession) -> None:
    records = [
        Record("t", 0, 3, b"a", b"1"),
        Record("t", 0, 5, b"b", b"1"),
        Record("t", 0, 9, b"a", None),
        Record("t", 0, 11, b"b", b"2"),
    ]
    once = merge(_frame(spark, []), _frame(spark, records))
    twice = merge(once, _frame(spark, records))
    assert as_table(twice.collect()) == as_table(once.collect()) == latest(records)


def test_the_timestamp_does_not_decide(spark: SparkSession) -> None:
    late = datetime(2030, 1, 1, tzinfo=UTC)
    rows = [
        (b"k", b"old", "t", 0, 1, late, None),
        (b"k", b"new", "t", 0, 2, late - timedelta(days=9), None),
    ]
    result = latest_per_key(spark.createDataFrame(rows, TABLE_SCHEMA)).collect()
    assert [(bytes(row["value"]), row["offset"]) for row in result] == [(b"new", 2)]


def test_the_columns_and_their_types_stay(spark: SparkSession) -> None:
    frame = latest_per_key(_frame(spark, []))
    assert [(field.name, field.dataType) for field in frame.schema] == [
        (field.name, field.dataType) for field in TABLE_SCHEMA
    ]


def _frame(spark: SparkSession, records: Iterable[Record]) -> DataFrame:
    when = datetime(2025, 5, 1, tzinfo=UTC)
    rows = [(r.key, r.value, r.topic, r.partition, r.offset, when, r.headers) for r in records]
    return spark.createDataFrame(rows, TABLE_SCHEMA)
