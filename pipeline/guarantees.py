"""Hold two readings of a topic against what compaction promises.

Between them the cleaner may have removed records, and producers may have added some. What must
hold all the same (https://kafka.apache.org/documentation/#design_compactionguarantees):

1. a reader that keeps up sees every record: none younger than ``min.compaction.lag.ms`` is gone
2. the order of records does not change
3. the offset of a record does not change: what is at an offset was there before
4. a reader from the start sees the final value of every key; and every tombstone for
   ``delete.retention.ms`` at least

Each check is a query whose rows are breaches: ``partition``, ``offset``, ``key`` and ``what``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from pipeline.reading import Reading

_BREACH = ("partition", "offset", "key", "what")


@dataclass(frozen=True, slots=True)
class Check:
    """A guarantee: its name, what it was held against, and the rows that break it."""

    name: str
    checked: DataFrame
    breaches: DataFrame


def last_of_keys(rows: DataFrame) -> DataFrame:
    """Return the last row of each key of a reading."""
    last = f.max_by(f.struct("is_tombstone", "timestamp_ms", "digest"), "offset").alias("last")
    keyed = rows.where(f.col("key").isNotNull()).groupBy("partition", "key")
    return keyed.agg(f.max("offset").alias("offset"), last).select(
        "partition", "key", "offset", "last.*"
    )


def check_final_values(last: DataFrame, after: DataFrame, second: Reading) -> Check:
    """Hold the last rows of keys with a value, `last_of_keys` of before, against a reading."""
    live = _above_start(last.where(~f.col("is_tombstone")), second)
    met = _with_later(live, after)
    what = f.when(f.col("later").isNull(), f.lit("its final value is gone")).when(
        f.col("later") < f.col("offset"),
        f.concat(f.lit("its final value is gone, that of offset "), "later", f.lit(" is back")),
    )
    return Check("the final value of every key is there", live, _breaches(met, what))


def check_deleted(last: DataFrame, after: DataFrame) -> Check:
    """Hold the tombstones that were the last of their key against a reading: none comes back."""
    dead = last.where("is_tombstone")
    what = f.when(
        f.col("later") < f.col("offset"),
        f.concat(f.lit("was deleted, and its value of offset "), "later", f.lit(" is back")),
    )
    return Check("a deleted key stays deleted", dead, _breaches(_with_later(dead, after), what))


def check_tombstones(last: DataFrame, after: DataFrame, second: Reading) -> Check:
    """Hold the tombstones that have to be there still against a reading."""
    appended_ms = f.least("timestamp_ms", f.lit(second.at_ms))
    due = last.where("is_tombstone").where(
        appended_ms + second.delete_retention_ms > f.lit(second.at_ms)
    )
    due = _above_start(due, second)
    what = f.when(
        f.col("later").isNull(), f.lit("its tombstone is gone before delete.retention.ms")
    )
    return Check("a tombstone stays for its time", due, _breaches(_with_later(due, after), what))


def check_offsets(before: DataFrame, after: DataFrame, first: Reading) -> Check:
    """Hold what a reading has at each offset against what the one before had there."""
    below = _below_end(after, first)
    known = before.select(
        "partition",
        "offset",
        f.col("key").alias("key_before"),
        f.col("digest").alias("digest_before"),
    )
    met = below.join(known, ["partition", "offset"], "left")
    same = f.col("key").eqNullSafe(f.col("key_before")) & (
        f.col("digest") == f.col("digest_before")
    )
    other = met.where(f.col("digest_before").isNull() | ~same)
    lost = before.join(after, ["partition", "offset", "key", "digest"], "left_anti")
    origins = lost.groupBy("partition", "key", "digest").agg(f.max("offset").alias("origin"))
    what = f.coalesce(
        f.concat(f.lit("was at offset "), "origin", f.lit(" and has moved")),
        f.when(f.col("digest_before").isNull(), f.lit("no record was at this offset")),
        f.lit("another record was at this offset"),
    )
    breaches = _breaches(other.join(origins, ["partition", "key", "digest"], "left"), what)
    return Check("no offset has changed", below, breaches)


def check_order(after: DataFrame) -> Check:
    """Hold the order in which records came against that of their offsets."""
    # The upper bits of an arrival number the task that read: tasks read apart.
    task = f.shiftright("arrival", 33)
    came = Window.partitionBy("partition", task).orderBy("arrival")
    previous = after.withColumn("previous", f.lag("offset").over(came))
    what = f.when(
        f.col("previous") >= f.col("offset"),
        f.concat(f.lit("came after offset "), "previous"),
    )
    return Check("the order has not changed", after, _breaches(previous, what))


def check_head(before: DataFrame, after: DataFrame, second: Reading) -> Check:
    """Hold the records that are too young to be cleaned against a reading."""
    young = before.where(
        f.col("timestamp_ms") > f.lit(second.at_ms - second.min_compaction_lag_ms)
    ).where(f.lit(second.min_compaction_lag_ms > 0))
    young = _above_start(young, second)
    gone = young.join(after, ["partition", "offset"], "left_anti")
    what = f.lit("was cleaned before min.compaction.lag.ms")
    return Check("no record is gone before its time", young, _breaches(gone, what))


def check_table(last: DataFrame, after: DataFrame, first: Reading) -> Check:
    """Hold a reading against the rows of a table, as `last_of_keys` gives them, kept of a topic.

    ``first`` says how far the table had come.
    """
    there = last_of_keys(_below_end(after, first)).where(~f.col("is_tombstone"))
    rows = last.select(
        "partition",
        "key",
        f.col("offset").alias("offset_kept"),
        f.col("digest").alias("digest_kept"),
    )
    met = there.join(rows, ["partition", "key"], "left")
    what = (
        f.when(f.col("offset_kept").isNull(), f.lit("the table has no row of it"))
        .when(
            f.col("offset_kept") != f.col("offset"),
            f.concat(f.lit("the table's row of it is of offset "), "offset_kept"),
        )
        .when(f.col("digest_kept") != f.col("digest"), f.lit("the table's row says otherwise"))
    )
    return Check("the table has the final value of every key", there, _breaches(met, what))


def _with_later(rows: DataFrame, after: DataFrame) -> DataFrame:
    """Add ``later``, the last offset of the same key in a reading, null for none."""
    last = after.where(f.col("key").isNotNull()).groupBy("partition", "key")
    return rows.join(last.agg(f.max("offset").alias("later")), ["partition", "key"], "left")


def _above_start(rows: DataFrame, reading: Reading) -> DataFrame:
    """Keep the rows that retention or DeleteRecords has not taken off the log's start."""
    starts = _bounds(rows.sparkSession, reading.starts)
    return rows.join(f.broadcast(starts), "partition").where("offset >= bound").drop("bound")


def _below_end(rows: DataFrame, reading: Reading) -> DataFrame:
    ends = _bounds(rows.sparkSession, reading.ends)
    return rows.join(f.broadcast(ends), "partition").where("offset < bound").drop("bound")


def _bounds(spark: SparkSession, offsets: Mapping[int, int]) -> DataFrame:
    return spark.createDataFrame(list(offsets.items()), "partition int, bound bigint")


def _breaches(rows: DataFrame, what: Column) -> DataFrame:
    return rows.withColumn("what", what).where("what IS NOT NULL").select(*_BREACH)
