"""Find a cleaner's effect on each record, at scale, from segment files.

Only two other records matter: the previous one of the same key, and the next one (see
`pipeline.cleaner_model`). A record whose key is null, or whose transaction was aborted, replaces
none, and the run that covers it removes it: its next record is itself.

Partitions are numbered in the order of their extents: the column ``place``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from odradek.dataclass import dataclass
from odradek.pipeline.cleaner_model import NEVER, RunFinder

if TYPE_CHECKING:
    import pyarrow as pa

# The columns of segment files that are needed.
COLUMNS = (
    "key", "topic", "partition", "offset", "size_bytes", "value_size_bytes", "aborted",
    "segment_offset",
)  # fmt: skip

# The run of records that no run covers yet.
UNCLEANABLE = -1

_ENDS = "place int, model string, ends array<bigint>"


@dataclass(frozen=True, slots=True)
class Extent:
    """A partition, and the offsets that a cleaner would cover."""

    topic: str
    partition: int
    first_dirty_offset: int
    first_uncleanable_offset: int


def with_neighbours(
    spark: SparkSession, records: DataFrame, extents: Sequence[Extent]
) -> DataFrame:
    """Add to each record the offsets of the previous and the next record of its key.

    A row is ``place, offset, segment_offset, size_bytes, is_void, is_tombstone, is_in_map``
    (whether it is dirty and its key counts), ``previous`` and ``next`` as in the model,
    ``following`` (the next one even where no run covers it), ``first`` (the first one in the
    map), NEVER for none, and the extent's ``first_dirty`` and ``first_uncleanable``.
    """
    key_columns = ("place", "is_void", "key_hash")
    by_key = Window.partitionBy(*key_columns).orderBy("offset")
    whole_key = Window.partitionBy(*key_columns)
    offset, first_dirty, end = f.col("offset"), f.col("first_dirty"), f.col("first_uncleanable")
    known = f.broadcast(_extents_frame(spark, extents))
    rows = records.join(known, ["topic", "partition"]).select(
        "place",
        "offset",
        "segment_offset",
        "size_bytes",
        "first_dirty",
        "first_uncleanable",
        _is_void().alias("is_void"),
        # The key of a void record does not matter; as one key they might be most of all records.
        f.when(_is_void(), offset).otherwise(f.xxhash64("key")).alias("key_hash"),
        f.col("value_size_bytes").isNull().alias("is_tombstone"),
    )
    is_in_map = ~f.col("is_void") & (offset >= first_dirty) & (offset < end)
    rows = rows.withColumn("is_in_map", is_in_map)
    rows = rows.withColumns(
        {
            "previous": f.coalesce(f.lag("offset").over(by_key), f.lit(NEVER)),
            "following": f.coalesce(f.lead("offset").over(by_key), f.lit(NEVER)),
            "first": f.coalesce(
                f.min(f.when(f.col("is_in_map"), offset)).over(whole_key), f.lit(NEVER)
            ),
        }
    )
    following = (
        f.when(f.col("is_void"), f.greatest(offset, first_dirty))
        .when(offset >= first_dirty, f.col("following"))
        .otherwise(f.col("first"))
    )
    return rows.withColumn(
        "next", f.when(following < end, following).otherwise(f.lit(NEVER))
    ).drop("key_hash")


def find_run_ends(
    neighbours: DataFrame, keys_max: Mapping[str, int]
) -> dict[tuple[int, str], list[int]]:
    """Find the offsets at which the map of each model is full: all run ends but the last.

    ``keys_max`` is the capacity of each model's map. The keys of the result are places and models.
    """
    limits = dict(keys_max)

    def find(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        return _find_ends(batches, limits)

    ends = (
        neighbours.where("is_in_map")
        .select("place", "offset", "previous", "first_dirty")
        .repartition("place")
        .sortWithinPartitions("place", "offset")
        .mapInArrow(find, _ENDS)
    )
    return {(row["place"], row["model"]): row["ends"] for row in ends.collect()}


def sum_sizes(
    spark: SparkSession,
    neighbours: DataFrame,
    run_ends: Mapping[int, Sequence[int]],
    full_at: Mapping[int, int],
) -> DataFrame:
    """Sum the records of each segment by the run that removes them.

    ``run_ends`` are Kafka's, by place, each with the end of the section; ``full_at`` are the
    offsets at which Odradek's map is full. A row is ``place, segment_offset, run`` (`UNCLEANABLE`,
    or the count of runs for records that stay), ``size_bytes, tombstones, spilled``.
    """
    rows = [(place, list(ends), full_at.get(place)) for place, ends in run_ends.items()]
    known = spark.createDataFrame(rows, "place int, ends array<bigint>, full_at bigint")
    offset, next_offset, full = f.col("offset"), f.col("next"), f.col("full_at")
    is_late = (f.col("first") >= full) | (f.col("first") == NEVER)
    is_spilled = full.isNotNull() & ~f.col("is_void") & is_late
    run = (
        f.when(offset >= f.col("first_uncleanable"), UNCLEANABLE)
        .when(next_offset == NEVER, f.size("ends"))
        .otherwise(f.size(f.filter("ends", lambda end: end <= f.col("next"))))
    )
    return (
        neighbours.join(f.broadcast(known), "place")
        .groupBy("place", "segment_offset", run.alias("run"))
        .agg(
            f.sum("size_bytes").alias("size_bytes"),
            f.count_if(f.col("is_in_map") & f.col("is_tombstone")).alias("tombstones"),
            f.count_if(is_spilled).alias("spilled"),
        )
    )


def sum_keys(neighbours: DataFrame) -> DataFrame:
    """Count each partition's records and keys, and sum the last records of its keys.

    A row is ``place, records, size_bytes, keys, live_bytes, tombstones`` (live ones),
    ``dirty_records, dirty_keys``.
    """
    is_last = ~f.col("is_void") & (f.col("following") == NEVER)
    is_first_dirty = f.col("is_in_map") & (f.col("previous") < f.col("first_dirty"))
    return neighbours.groupBy("place").agg(
        f.count(f.lit(1)).alias("records"),
        f.sum("size_bytes").alias("size_bytes"),
        f.count_if(is_last).alias("keys"),
        f.coalesce(f.sum(f.when(is_last, f.col("size_bytes"))), f.lit(0)).alias("live_bytes"),
        f.count_if(is_last & f.col("is_tombstone")).alias("tombstones"),
        f.count_if("is_in_map").alias("dirty_records"),
        f.count_if(is_first_dirty).alias("dirty_keys"),
    )


def _extents_frame(spark: SparkSession, extents: Sequence[Extent]) -> DataFrame:
    rows = [
        (place, one.topic, one.partition, one.first_dirty_offset, one.first_uncleanable_offset)
        for place, one in enumerate(extents)
    ]
    columns = "place int, topic string, partition int"
    return spark.createDataFrame(
        rows, columns + ", first_dirty bigint, first_uncleanable bigint"
    )


def _is_void() -> Column:
    return f.col("key").isNull() | f.coalesce(f.col("aborted"), f.lit(False))


def _find_ends(
    batches: Iterable["pa.RecordBatch"], keys_max: Mapping[str, int]
) -> Iterator["pa.RecordBatch"]:
    """Feed the records of partition after partition to a finder for each model."""
    import numpy as np
    import pyarrow as pa

    found: dict[tuple[int, str], RunFinder] = {}
    for batch in batches:
        places, offsets, previous, first_dirty = (
            batch.column(name).to_numpy()
            for name in ("place", "offset", "previous", "first_dirty")
        )
        edges = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]
        for start, end in pairwise(edges):
            if start == end:
                continue
            place = int(places[start])
            for model, limit in keys_max.items():
                finder = found.setdefault(
                    (place, model), RunFinder(int(first_dirty[start]), limit)
                )
                finder.feed(offsets[start:end], previous[start:end])
    places_models = list(found)
    yield pa.RecordBatch.from_arrays(
        [
            pa.array([place for place, _ in places_models], pa.int32()),
            pa.array([model for _, model in places_models], pa.string()),
            pa.array([found[one].ends for one in places_models], pa.list_(pa.int64())),
        ],
        names=["place", "model", "ends"],
    )
