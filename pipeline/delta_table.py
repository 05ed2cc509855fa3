"""Keep a Delta Lake table with one row for each key of a topic.

The table's rows have the columns ``topic``, ``partition``, ``key``, ``value``, ``offset``,
``timestamp`` and ``headers``, and ``mismatched`` where values are read by a schema. ``value`` is
binary, or a struct of the schema's fields.

Offsets decide. A record that is older than the row of its key, or the same record, changes
nothing; so a batch may be applied twice, or half of it before a crash:

    table      batch                 table after it, however often
    p3 @ 3     p3 @ 6  value         p3 @ 6
    p5 @ 4     p5 @ 7  tombstone
    p6 @ 9     p6 @ 8  value         p6 @ 9

The table's property ``odradek.query`` names the streaming query that wrote it, and the user
metadata of each commit name the batch of that query, so that a checkpoint that belongs to another
table, or to another state of it, is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from odradek.pipeline.checkpoint import Progress
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.files import exists, qualify

_QUERY = "odradek.query"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_IDENTITY = "t.topic = s.topic AND t.partition = s.partition AND t.key = s.key"

# The search for the job's last commit covers this many commits, with others such as OPTIMIZE.
_HISTORY_COMMITS = 200


@dataclass(frozen=True, slots=True)
class Merged:
    """The effect of a batch on a table: counts of rows."""

    inserted: int
    updated: int
    deleted: int


def is_there(spark: SparkSession, table: str) -> bool:
    """Return whether a folder holds a Delta Lake table."""
    return exists(spark, f"{table}/_delta_log")


def read_delta(spark: SparkSession, table: str) -> DataFrame:
    """Read a table as it is now.

    Raises PipelineError where there is none.
    """
    if not is_there(spark, table):
        raise PipelineError(
            f"{table} holds no Delta Lake table: run odradek pipeline materialize first"
        )
    return spark.read.format("delta").load(table)


def read_kept(spark: SparkSession, table: str) -> tuple[Progress, DataFrame]:
    """Read a table as it was after its last batch, even while a job writes to it.

    Raises PipelineError where there is no table, or no batch of a job in it.
    """
    read_delta(spark, table)
    for row in _history(spark, table):
        progress = _understood(row["userMetadata"])
        if progress is not None and progress.batch_id >= 0:
            reader = spark.read.format("delta").option("versionAsOf", str(row["version"]))
            return progress, reader.load(table)
    raise PipelineError(f"{table} holds no batch of odradek pipeline materialize")


def create(table: str, rows: DataFrame, progress: Progress, properties: Mapping[str, str]) -> None:
    """Create an empty table for rows like these, which belongs to a query."""
    spark = rows.sparkSession
    writer = rows.drop("is_tombstone").limit(0).write.format("delta")
    for name, value in properties.items():
        writer = writer.option(name, value)
    writer.option("userMetadata", _metadata_of(progress)).save(table)
    _note_query(spark, table, progress)


def merge(table: str, rows: DataFrame, progress: Progress) -> Merged:
    """Apply the last records of keys to a table, and note their batch.

    ``rows`` has the table's columns and ``is_tombstone``. Raises PipelineError where the columns
    are not the table's.
    """
    spark = rows.sparkSession
    _require_columns(table, spark.read.format("delta").load(table), rows.drop("is_tombstone"))
    rows.createOrReplaceTempView("odradek_batch")
    columns = [column for column in rows.columns if column != "is_tombstone"]
    assignments = ", ".join(f"t.{column} = s.{column}" for column in columns)
    values = ", ".join(f"s.{column}" for column in columns)
    spark.conf.set(_USER_METADATA, _metadata_of(progress))
    try:
        # The columns' names are fixed in this project, and the table's name is quoted.
        counts = spark.sql(
            f"MERGE INTO {_name(spark, table)} t USING odradek_batch s ON {_IDENTITY} "
            "WHEN MATCHED AND s.offset > t.offset AND s.is_tombstone THEN DELETE "
            f"WHEN MATCHED AND s.offset > t.offset THEN UPDATE SET {assignments} "
            f"WHEN NOT MATCHED AND NOT s.is_tombstone THEN INSERT ({', '.join(columns)}) "
            f"VALUES ({values})"  # nosec B608
        ).collect()[0]
    finally:
        spark.conf.unset(_USER_METADATA)
    return Merged(
        counts["num_inserted_rows"], counts["num_updated_rows"], counts["num_deleted_rows"]
    )


def note_batch(spark: SparkSession, table: str, progress: Progress) -> None:
    """Note a batch with nothing to merge."""
    spark.conf.set(_USER_METADATA, _metadata_of(progress))
    try:
        _note_query(spark, table, progress)
    finally:
        spark.conf.unset(_USER_METADATA)


def delete_missing(table: str, keys: DataFrame) -> int:
    """Delete the rows whose key is not among these, and return their number."""
    keys.select("topic", "partition", "key").distinct().createOrReplaceTempView("odradek_keys")
    spark = keys.sparkSession
    counts = spark.sql(
        f"MERGE INTO {_name(spark, table)} t USING odradek_keys s ON {_IDENTITY} "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    ).collect()[0]
    deleted: int = counts["num_deleted_rows"]
    return deleted


def table_progress(spark: SparkSession, table: str) -> Progress | None:
    """Read the query that wrote a table, and its last batch in the table; None without a table.

    The batch is -1 where the table's history has been cut off since.
    """
    if not is_there(spark, table):
        return None
    properties = spark.sql(f"SHOW TBLPROPERTIES {_name(spark, table)}")
    properties = properties.where(f.col("key") == _QUERY)
    found = properties.collect()
    if not found:
        return Progress("", -1)
    for row in _history(spark, table):
        progress = _understood(row["userMetadata"])
        if progress is not None and progress.query_id == found[0]["value"]:
            return progress
    return Progress(found[0]["value"], -1)


def require_match(
    held: Progress | None, read: Progress | None, table: str, checkpoint: str
) -> None:
    """Refuse a table and a checkpoint that do not belong together.

    ``held`` is the table's progress and ``read`` the checkpoint's, from which a job continues. If
    one of them belonged elsewhere, records would be lost silently. Raises PipelineError.
    """
    fresh = "give a new --table and a new --checkpoint to start from the beginning"
    if held is None:
        if read is not None and read.batch_id >= 0:
            raise PipelineError(
                f"{checkpoint} has read up to batch {read.batch_id} but {table} is empty: "
                f"restore the table, or {fresh}"
            )
        return
    if read is None or read.query_id != held.query_id:
        raise PipelineError(
            f"{table} was written by another job, or with another checkpoint than {checkpoint}: "
            f"use that one, or {fresh}"
        )
    # A kill between the two commits leaves the table one batch ahead, never behind.
    if held.batch_id >= 0 and not 0 <= held.batch_id - read.batch_id <= 1:
        raise PipelineError(
            f"{table} holds batch {held.batch_id} but {checkpoint} is at batch {read.batch_id}, "
            f"as if one of them was restored from a copy: {fresh}"
        )


def _require_columns(table: str, held: DataFrame, rows: DataFrame) -> None:
    before, now = ({field.name: field.dataType for field in one.schema} for one in (held, rows))
    if before != now:
        changed = ", ".join(
            f"{name} is {before[name].simpleString() if name in before else 'not there'}, "
            f"not {now[name].simpleString() if name in now else 'there'}"
            for name in before | now
            if before.get(name) != now.get(name)
        )
        raise PipelineError(
            f"in {table} the column {changed}: give the --format and --schema that it was created "
            "with, or a new --table and a new --checkpoint"
        )


def _note_query(spark: SparkSession, table: str, progress: Progress) -> None:
    note = f"'{_QUERY}' = '{progress.query_id}'"
    spark.sql(f"ALTER TABLE {_name(spark, table)} SET TBLPROPERTIES ({note})")


def _history(spark: SparkSession, table: str) -> list[Row]:
    """Return the last commits, the newest first."""
    history = spark.sql(f"DESCRIBE HISTORY {_name(spark, table)} LIMIT {_HISTORY_COMMITS}")
    rows: list[Row] = history.orderBy(f.desc("version")).collect()
    return rows


def _name(spark: SparkSession, table: str) -> str:
    # In SQL, Delta Lake does not accept a relative path of a table.
    return f"delta.`{qualify(spark, table).replace('`', '``')}`"


def _metadata_of(progress: Progress) -> str:
    return json.dumps({"query": progress.query_id, "batch": progress.batch_id})


def _understood(metadata: str | None) -> Progress | None:
    try:
        fields = json.loads(metadata or "")
        return Progress(str(fields["query"]), int(fields["batch"]))
    except (ValueError, KeyError, TypeError):
        return None
