"""Turn a table into keyed records: the key of each row, and the row as a value.

    id  account_id  status                key   value
     7           3  open            ->    "7"   {"id":7,"account_id":3,"status":"open"}
     8           3  deleted               "8"   null, where rows are deleted by status = 'deleted'

A key of one column is that column as text, or its bytes where it is binary; a key of several is a
JSON object of them. A value is a JSON object of every column, nulls included, or one column.
"""

import functools
import operator
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError


@dataclass(frozen=True, slots=True)
class Keyed:
    """The rules by which rows become records.

    ``key`` names the columns of the key; ``value`` a column to take as the value instead of the
    row as JSON; ``deleted_where`` is a condition in SQL for rows that become tombstones.
    """

    key: Sequence[str]
    value: str | None = None
    deleted_where: str | None = None


def as_records(table: DataFrame, keyed: Keyed) -> DataFrame:
    """Return a row of ``key`` and ``value``, both binary, for each row of a table.

    Raises PipelineError for a column that does not exist.
    """
    for name in (*keyed.key, *([keyed.value] if keyed.value else [])):
        if name not in table.columns:
            raise PipelineError(
                f"the table has no column {name!r}: its columns are {', '.join(table.columns)}"
            )
    if keyed.value is None:
        everything = f.struct(*(f.col(f"`{name}`") for name in table.columns))
        value = f.to_json(everything, {"ignoreNullFields": "false"}).cast("binary")
    else:
        value = _as_bytes(table, keyed.value)
    if keyed.deleted_where:
        # A condition that is neither true nor false, for a null, keeps the row.
        value = f.when(~f.coalesce(f.expr(keyed.deleted_where), f.lit(False)), value)
    return table.select(_key(table, keyed.key).alias("key"), value.alias("value"))


def tombstones_of_missing(records: DataFrame, latest: DataFrame) -> DataFrame:
    """Return a tombstone for each key that is in a topic and not among records.

    ``latest`` holds the topic's keys, at least those with a value.
    """
    missing = latest.select("key").distinct().join(records, "key", "left_anti")
    return missing.select("key", f.lit(None).cast("binary").alias("value"))


def require_unique_keys(records: DataFrame) -> None:
    """Refuse records that no reader could distinguish: without a key, or with the same key.

    Raises PipelineError with examples.
    """
    counts = records.groupBy("key").count().where("key IS NULL OR count > 1")
    found = counts.orderBy(f.col("key").isNotNull(), f.desc("count")).limit(3).collect()
    if not found:
        return
    if found[0]["key"] is None:
        raise PipelineError(
            f"{found[0]['count']} rows have no key: name columns that are never null with --key"
        )
    examples = ", ".join(f"{bytes(row['key'])!r} {row['count']} times" for row in found)
    raise PipelineError(
        f"several rows have one key ({examples}): name columns that identify a row with --key"
    )


def _key(table: DataFrame, columns: Sequence[str]) -> Column:
    if len(columns) == 1:
        return _as_bytes(table, columns[0])
    together = f.struct(*(f.col(f"`{name}`") for name in columns))
    # The key is null where one of its columns is null, as with one column.
    known = functools.reduce(operator.and_, (f.col(f"`{name}`").isNotNull() for name in columns))
    return f.when(known, f.to_json(together)).cast("binary")


def _as_bytes(table: DataFrame, name: str) -> Column:
    column, kind = f.col(f"`{name}`"), table.schema[name].dataType
    if isinstance(kind, t.BinaryType):
        return column
    if isinstance(kind, t.StructType | t.ArrayType | t.MapType):
        return f.to_json(column).cast("binary")
    return column.cast("string").cast("binary")
