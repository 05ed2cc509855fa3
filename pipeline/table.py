"""Keep a table as a series of whole snapshots, each committed at once.

    <table>/
      snapshot-00000000000000000041-<query id>/    the one before, for readers that still use it
      snapshot-00000000000000000042-<query id>/    the table after batch 42
        part-00000-….snappy.parquet
        _SUCCESS                                   written last: the snapshot is committed

A snapshot is named for the batch it includes and for the streaming query that wrote it. Spark
writes ``_SUCCESS`` into a folder only after every file in it is whole, so a folder without it
does not count: a job killed half-way leaves one, and the same batch overwrites it on restart. A
batch whose snapshot is committed is not applied again. Together with Spark's promise to repeat a
batch with the same offsets until it is committed, each record counts exactly once.

The table's folder may be in any file system of Hadoop's: a local path, ``s3a://``, ``hdfs://``.
Each batch rewrites the whole table, which suits tables of up to some million keys.
"""

import re

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from odradek.dataclass import dataclass
from odradek.pipeline.checkpoint import Progress
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.files import exists, list_names, remove

TABLE_SCHEMA = t.StructType(
    [
        t.StructField("key", t.BinaryType()),
        t.StructField("value", t.BinaryType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
        t.StructField("timestamp", t.TimestampType()),
        t.StructField(
            "headers",
            t.ArrayType(
                t.StructType(
                    [
                        t.StructField("key", t.StringType()),
                        t.StructField("value", t.BinaryType()),
                    ]
                )
            ),
        ),
    ]
)

_NAME = re.compile(r"snapshot-(\d{20})-([0-9a-f-]{36})")
_COMMITTED = "_SUCCESS"


@dataclass(frozen=True, slots=True, order=True)
class Snapshot:
    """A snapshot of the table: the last batch in it, and the query that wrote it."""

    batch_id: int
    query_id: str

    @property
    def progress(self) -> Progress:
        """The progress of the query up to this snapshot."""
        return Progress(self.query_id, self.batch_id)

    @property
    def name(self) -> str:
        """Return the name of its folder inside the table's folder."""
        return f"snapshot-{self.batch_id:020d}-{self.query_id}"


def read_table(spark: SparkSession, table: str) -> DataFrame:
    """Read the newest committed snapshot of a table.

    Raises PipelineError where there is none.
    """
    snapshot = newest_snapshot(spark, table)
    if snapshot is None:
        raise PipelineError(
            f"{table} holds no table yet: run python -m odradek.pipeline.latest first"
        )
    return read_snapshot(spark, table, snapshot)


def read_snapshot(spark: SparkSession, table: str, snapshot: Snapshot | None) -> DataFrame:
    """Read one snapshot; None is the empty table."""
    if snapshot is None:
        # Not createDataFrame, for which each machine of a cluster would run the same Python.
        nothing = (f.lit(None).cast(column.dataType).alias(column.name) for column in TABLE_SCHEMA)
        return spark.range(0).select(*nothing)
    return spark.read.schema(TABLE_SCHEMA).parquet(f"{table}/{snapshot.name}")


def newest_snapshot(spark: SparkSession, table: str) -> Snapshot | None:
    """Return the committed snapshot with the most batches in it, or None."""
    for snapshot in sorted(_snapshots(spark, table), reverse=True):
        if exists(spark, f"{table}/{snapshot.name}/{_COMMITTED}"):
            return snapshot
    return None


def write_snapshot(rows: DataFrame, table: str, snapshot: Snapshot) -> None:
    """Write a snapshot and commit it; an uncommitted one of the same name is replaced."""
    (
        rows.write.mode("overwrite")
        # The commit is this file, so a site's configuration must not switch it off.
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "true")
        .parquet(f"{table}/{snapshot.name}")
    )


def remove_snapshots(spark: SparkSession, table: str, before: Snapshot, keep: int) -> None:
    """Remove snapshots older than one, committed or not, except the newest ``keep`` of them."""
    older = sorted(s for s in _snapshots(spark, table) if s.batch_id < before.batch_id)
    for snapshot in older[: max(0, len(older) - keep)]:
        # A half-removed snapshot must not look committed: its marker goes first.
        remove(spark, f"{table}/{snapshot.name}/{_COMMITTED}")
        remove(spark, f"{table}/{snapshot.name}")


def _snapshots(spark: SparkSession, table: str) -> list[Snapshot]:
    names = (_NAME.fullmatch(name) for name in list_names(spark, table))
    return [Snapshot(int(found[1]), found[2]) for found in names if found]
