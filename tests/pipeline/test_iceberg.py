"""What Iceberg has and Delta Lake has not: catalogs, and a history that can be rolled back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from odradek.pipeline.checkpoint import Progress
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.iceberg_table import IcebergCatalog, IcebergTable
from odradek.pipeline.kept_table import KeptTable, Merged
from odradek.pipeline.materializing import MaterializeJob, apply_batch
from odradek.pipeline.options import errors_in_one_line
from odradek.pipeline.source import TopicSource
from odradek.pipeline.table import TABLE_SCHEMA
from tests.pipeline.rest_catalog import running_rest_catalog
from tests.pipeline.tables import kept_table, sql_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

QUERY = "11111111-2222-3333-4444-555555555555"
SOURCE = TopicSource("127.0.0.1:1", topic="t")


def test_a_table_that_was_rolled_back_holds_an_earlier_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = kept_table("hadoop", tmp_path)
    for batch_id in range(3):
        _apply(spark, table, batch_id)
    snapshots = spark.sql(f"SELECT * FROM {sql_name(table, spark)}.snapshots").collect()
    [first] = [row for row in snapshots if row["summary"].get("odradek.batch") == "0"]
    loader = spark._jvm.org.apache.iceberg.spark.Spark3Util
    ours = loader.loadIcebergTable(spark._jsparkSession, sql_name(table, spark))
    ours.manageSnapshots().rollbackTo(first["snapshot_id"]).commit()
    assert table.progress(spark) == Progress(QUERY, 0)
    progress, rows = table.read_kept(spark)
    assert progress == Progress(QUERY, 0)
    assert [row["offset"] for row in rows.collect()] == [0]


def test_a_reader_gets_the_table_of_the_last_batch_whatever_others_have_done_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = kept_table("hadoop", tmp_path)
    _apply(spark, table, 0)
    spark.sql(f"DELETE FROM {sql_name(table, spark)}")
    assert table.read(spark).count() == 0
    progress, rows = table.read_kept(spark)
    assert (progress, rows.count()) == (Progress(QUERY, 0), 1)


def test_a_table_that_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    table = kept_table("hadoop", tmp_path)
    assert table.progress(spark) is None
    with pytest.raises(PipelineError, match=r"has no table sales\.eu\.tickets"):
        table.read_kept(spark)


def test_settings_of_the_session_describe_a_catalog_and_win(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(PipelineError, match=r"give --warehouse, or --iceberg-catalog"):
        IcebergCatalog("bare").connect(spark)
    prefix = "spark.sql.catalog.described"
    spark.conf.set(f"{prefix}.type", "hadoop")
    spark.conf.set(f"{prefix}.warehouse", f"{tmp_path}/given")
    for catalog in (IcebergCatalog("described"), IcebergCatalog("described", "http://127.0.0.1:1")):
        catalog.connect(spark)
        assert spark.conf.get(f"{prefix}.type") == "hadoop"
    _apply(spark, IcebergTable(IcebergCatalog("described", warehouse="other"), "n.t"), 0)
    assert (tmp_path / "given" / "n" / "t" / "metadata").exists()
    spark.conf.set("spark.sql.catalog.own.catalog-impl", "org.example.Catalog")
    IcebergCatalog("own", "http://127.0.0.1:1").connect(spark)
    assert spark.conf.get("spark.sql.catalog.own.type", None) is None


@pytest.mark.parametrize(
    ("name", "uri", "words"),
    [
        ("silent", "http://127.0.0.1:1", "the Iceberg catalog does not answer"),
        ("driverless", "jdbc:none:x", "--conf spark.jars.packages="),
        ("shut", "jdbc:sqlite:/no/such/folder/db", "database failed (Failed to connect: jdbc:"),
    ],
)
def test_a_catalog_that_cannot_be_reached_is_reported_in_one_line(
    spark: SparkSession, tmp_path: Path, name: str, uri: str, words: str
) -> None:
    catalog = IcebergCatalog(name, uri, str(tmp_path))
    with pytest.raises(click.ClickException) as failure, errors_in_one_line(SOURCE, debug=False):
        IcebergTable(catalog, "n.t").progress(spark)
    assert words in failure.value.message
    assert "\n" not in failure.value.message


@pytest.mark.interop
def test_a_rest_catalog_has_the_table(spark: SparkSession, tmp_path: Path) -> None:
    with running_rest_catalog(tmp_path) as uri:
        table = IcebergTable(IcebergCatalog("rest", uri), "sales.eu.tickets")
        for batch_id in range(2):
            expected = Merged(1 - batch_id, batch_id, 0)
            assert _apply(spark, table, batch_id) == expected
            assert _apply(spark, table, batch_id) == Merged(0, 0, 0)
            assert table.progress(spark) == Progress(QUERY, batch_id)
        assert [row["offset"] for row in table.read(spark).collect()] == [1]
        keys = spark.createDataFrame([], TABLE_SCHEMA)
        assert table.delete_missing(keys) == 1
        assert table.progress(spark) == Progress(QUERY, 1)
        assert table.read(spark).count() == 0


def _apply(spark: SparkSession, table: KeptTable, batch_id: int) -> Merged:
    """Apply a batch with one record, of the one key."""
    rows = [(b"k", b"v", "t", 0, batch_id, None, None)]
    job = MaterializeJob(SOURCE, table, "none")
    return apply_batch(job, spark.createDataFrame(rows, TABLE_SCHEMA), Progress(QUERY, batch_id))
