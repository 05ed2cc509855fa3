"""Check the guarantees of compaction on two readings of a topic.

Between them the cleaner may have removed records, and producers may have added some. These must
hold nevertheless (https://kafka.apache.org/documentation/#design_compactionguarantees):

1. a reader that keeps up sees every record: none younger than ``min.compaction.lag.ms`` is gone
2. the order of records does not change
3. the offset of a record does not change: a record at an offset was there before
4. a reader from the start sees the final value of every key; and every tombstone for
   ``delete.retention.ms`` at least

A check applies to the rows of a join of two readings: one row for each key, or for each offset. A
row that breaks it has a text about the breach.
"""

import json
from collections.abc import Callable, Mapping

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from odradek.dataclass import dataclass
from odradek.pipeline.reading import Reading


@dataclass(frozen=True, slots=True)
class Check:
    """A guarantee: its name, the rows it applies to, and ``what``: a text on a breach, or null.

    ``explained`` adds details to the texts of some rows that break it.
    """

    name: str
    applies: Column
    what: Column
    explained: Callable[[DataFrame], DataFrame] = lambda rows: rows


def last_of_keys(rows: DataFrame) -> DataFrame:
    """Return the last row of each key of a reading."""
    last = f.max_by(f.struct("is_tombstone", "timestamp_ms", "digest"), "offset").alias("last")
    keyed = rows.where(f.col("key").isNotNull()).groupBy("partition", "key")
    return keyed.agg(f.max("offset").alias("offset"), last).select(
        "partition", "key", "offset", "last.*"
    )


def by_key(last: DataFrame, after: DataFrame, second: Reading) -> DataFrame:
    """Join the last rows of keys with a reading.

    Adds ``later``, the last offset of the key in it, null for none, and ``start``, the first
    offset of the partition: retention or DeleteRecords has removed the records below.
    """
    later = after.where(f.col("key").isNotNull()).groupBy("partition", "key")
    joined = last.join(later.agg(f.max("offset").alias("later")), ["partition", "key"], "left")
    return with_bound(joined, second.starts, "start")


def key_checks(second: Reading, *, with_tombstones: bool = True) -> list[Check]:
    """Return the checks of the rows of `by_key`: values stay, deleted keys stay deleted."""
    gone, older = f.col("later").isNull(), f.col("later") < f.col("offset")
    live = ~f.col("is_tombstone") & (f.col("offset") >= f.col("start"))
    dead = f.col("is_tombstone")
    appended_ms = f.least("timestamp_ms", f.lit(second.at_ms))
    due = dead & (f.col("offset") >= f.col("start"))
    due &= appended_ms + second.delete_retention_ms > f.lit(second.at_ms)
    values = Check(
        "the final value of every key is there",
        live,
        f.when(gone, "its final value is gone").when(
            older,
            f.concat(f.lit("its final value is gone, and offset "), "later", f.lit("'s is back")),
        ),
    )
    deleted = Check(
        "a deleted key stays deleted",
        dead,
        f.when(
            older,
            f.concat(f.lit("was deleted, and its value of offset "), "later", f.lit(" is back")),
        ),
    )
    tombstones = Check(
        "a tombstone stays for its time",
        due,
        f.when(gone, "its tombstone is gone before delete.retention.ms"),
    )
    return [values, deleted, tombstones] if with_tombstones else [values]


def by_offset(before: DataFrame, after: DataFrame, first: Reading, second: Reading) -> DataFrame:
    """Join two readings by offset.

    Columns of the first reading have ``_before`` added to their names. Columns are null where
    their reading has no record. ``end`` is the end offset of the first reading, and ``start`` the
    start offset of the second.
    """
    place = ["partition", "offset"]
    renamed = before.select(
        *place,
        f.col("key").alias("key_before"),
        f.col("digest").alias("digest_before"),
        f.col("timestamp_ms").alias("timestamp_ms_before"),
    )
    joined = renamed.join(after.select(*place, "key", "digest"), place, "full")
    return with_bound(with_bound(joined, first.ends, "end"), second.starts, "start")


def offset_checks(rows: DataFrame, second: Reading) -> list[Check]:
    """Return the checks of `by_offset`'s rows: offsets keep their records, young records stay."""
    is_here, was_here = f.col("digest").isNotNull(), f.col("digest_before").isNotNull()
    same = f.col("key").eqNullSafe(f.col("key_before")) & (
        f.col("digest") == f.col("digest_before")
    )

    def with_origins(breaches: DataFrame) -> DataFrame:
        lost = rows.where(was_here & (~is_here | ~same))
        origins = lost.groupBy(
            "partition", f.col("key_before").alias("key"), f.col("digest_before").alias("digest")
        ).agg(f.max("offset").alias("origin"))
        moved = f.concat(f.lit("was at offset "), "origin", f.lit(" and has moved"))
        joined = breaches.join(origins, ["partition", "key", "digest"], "left")
        return joined.withColumn("what", f.coalesce(moved, "what"))

    unchanged = Check(
        "no offset has changed",
        is_here & (f.col("offset") < f.col("end")),
        f.when(~was_here, "no record was at this offset").when(
            ~same, "another record was at this offset"
        ),
        with_origins,
    )
    oldest_ms = second.at_ms - second.min_compaction_lag_ms
    young = was_here & (f.col("timestamp_ms_before") > f.lit(oldest_ms))
    young &= f.lit(second.min_compaction_lag_ms > 0) & (f.col("offset") >= f.col("start"))
    head = Check(
        "no record is gone before its time",
        young,
        f.when(~is_here, "was cleaned before min.compaction.lag.ms"),
    )
    return [unchanged, head]


def in_order(after: DataFrame) -> DataFrame:
    """Add ``previous`` to a reading, the offset that arrived before in the same partition."""
    # The upper bits of an arrival are the number of the reading task: tasks read separately.
    task = f.shiftright("arrival", 33)
    came = Window.partitionBy("partition", task).orderBy("arrival")
    return after.withColumn("previous", f.lag("offset").over(came))


def order_check() -> Check:
    """Return the check of the rows of `in_order`."""
    return Check(
        "the order has not changed",
        f.lit(True),
        f.when(
            f.col("previous") >= f.col("offset"),
            f.concat(f.lit("came after offset "), "previous"),
        ),
    )


def by_key_of_table(last: DataFrame, after: DataFrame, first: Reading) -> DataFrame:
    """Join the last rows of a reading's keys with the rows of a table of the topic.

    ``first`` has the end offsets of the table. Adds ``offset_kept`` and ``digest_kept``, null for
    a key without a row.
    """
    below = with_bound(after, first.ends, "end").where("offset < end")
    rows = last.select(
        "partition",
        "key",
        f.col("offset").alias("offset_kept"),
        f.col("digest").alias("digest_kept"),
    )
    return last_of_keys(below).join(rows, ["partition", "key"], "left")


def table_check() -> Check:
    """Return the check of the rows of `by_key_of_table`."""
    return Check(
        "the table has the final value of every key",
        ~f.col("is_tombstone"),
        f.when(f.col("offset_kept").isNull(), "the table has no row of it")
        .when(
            f.col("offset_kept") != f.col("offset"),
            f.concat(f.lit("the table's row of it is of offset "), "offset_kept"),
        )
        .when(f.col("digest_kept") != f.col("digest"), "the table's row says otherwise"),
    )


def with_bound(rows: DataFrame, offsets: Mapping[int, int], name: str) -> DataFrame:
    """Add a column with the offset of each row's partition, null for none."""
    bounds = _bounds(rows.sparkSession, offsets, name)
    return rows.join(f.broadcast(bounds), "partition", "left")


def _bounds(spark: SparkSession, offsets: Mapping[int, int], name: str) -> DataFrame:
    # Rows that come from Python would require the same Python on each machine of a cluster.
    by_partition = f.from_json(f.lit(json.dumps(offsets)), "map<string,bigint>")
    bounds = spark.range(1).select(f.explode(by_partition).alias("partition", name))
    return bounds.withColumn("partition", f.col("partition").cast("int"))
