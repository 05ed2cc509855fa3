"""Rows become keyed records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.keyed import Keyed, as_records, require_unique_keys, tombstones_of_missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = [(7, "a", bytearray(b"\x00\xff"), None), (8, "b", bytearray(b""), True)]
SCHEMA = "id int, `a name` string, raw binary, deleted boolean"


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    """Two rows, with a null and a name that has a space."""
    return spark.createDataFrame(ROWS, SCHEMA)


def test_a_value_is_the_whole_row_with_its_nulls(table: DataFrame) -> None:
    found = _collected(as_records(table, Keyed(["id"])))
    row = {"id": 7, "a name": "a", "raw": "AP8=", "deleted": None}
    assert json.loads(found[b"7"] or b"") == row
    assert set(found) == {b"7", b"8"}


def test_a_column_can_be_the_value_as_it_is(table: DataFrame) -> None:
    found = _collected(as_records(table, Keyed(["id"], value="raw")))
    assert found == {b"7": b"\x00\xff", b"8": b""}


def test_a_binary_key_is_taken_as_it_is(table: DataFrame) -> None:
    assert set(_collected(as_records(table, Keyed(["raw"])))) == {b"\x00\xff", b""}


def test_a_key_of_several_columns_names_them(table: DataFrame) -> None:
    found = _collected(as_records(table, Keyed(["id", "a name"])))
    assert [json.loads(key) for key in sorted(found)] == [
        {"id": 7, "a name": "a"},
        {"id": 8, "a name": "b"},
    ]


def test_a_condition_makes_tombstones_and_null_is_no_condition(table: DataFrame) -> None:
    found = _collected(as_records(table, Keyed(["id"], deleted_where="deleted")))
    assert found[b"8"] is None
    assert found[b"7"] is not None


@pytest.mark.parametrize("keyed", [Keyed(["no"]), Keyed(["id"], value="no")])
def test_a_missing_column_is_reported_with_those_that_are_there(
    table: DataFrame, keyed: Keyed
) -> None:
    with pytest.raises(PipelineError, match=r"no column 'no': .* id, a name, raw, deleted"):
        as_records(table, keyed)


@pytest.mark.parametrize("key", [["deleted"], ["id", "deleted"]])
def test_rows_without_a_key_are_refused(table: DataFrame, key: list[str]) -> None:
    with pytest.raises(PipelineError, match="1 rows have no key"):
        require_unique_keys(as_records(table, Keyed(key)))


def test_rows_that_share_a_key_are_refused_with_examples(spark: SparkSession) -> None:
    table = spark.createDataFrame([("x",), ("y",), ("x",)], "id string")
    with pytest.raises(PipelineError, match=r"b'x' 2 times"):
        require_unique_keys(as_records(table, Keyed(["id"])))


def test_each_key_of_a_topic_that_no_row_has_gets_one_tombstone(
    spark: SparkSession, table: DataFrame
) -> None:
    latest = spark.createDataFrame([(b"7",), (b"9",), (b"9",)], "key binary")
    found = tombstones_of_missing(as_records(table, Keyed(["id"])), latest).collect()
    assert [(bytes(row["key"]), row["value"]) for row in found] == [(b"9", None)]


def _collected(records: DataFrame) -> Mapping[bytes, bytes | None]:
    return {
        bytes(row["key"]): None if row["value"] is None else bytes(row["value"])
        for row in records.collect()
    }
