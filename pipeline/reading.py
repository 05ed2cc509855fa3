"""Take a reading of a topic: its records at a moment, small enough to keep.

    <folder>/
      records/part-….parquet   a row for each record, with a digest in place of its value
      reading.json             its time and its offsets; written last: then the reading is whole

A row is

    partition     int
    offset        bigint
    key           binary      null for a record without a key
    is_tombstone  boolean
    timestamp_ms  bigint
    digest        binary      SHA-256 of value, timestamp and headers
    arrival       bigint      in the order in which a reader got the records of a partition
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType

from odradek.dataclass import dataclass
from odradek.pipeline.admin import open_admin, require_compacted
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.files import exists, read_text, remove, write_text
from odradek.pipeline.formats import ValueFormat, read_values
from odradek.pipeline.source import TopicSource, committed, read_batch

_RAW = ValueFormat()


@dataclass(frozen=True, slots=True)
class Reading:
    """The time, the topic and the offsets of a reading; ``ends`` are the last stable offsets.

    ``at_ms`` is a time before its first record was read. ``min_compaction_lag_ms`` and
    ``delete_retention_ms`` are the topic's configs at that time.
    """

    topic: str
    at_ms: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    min_compaction_lag_ms: int
    delete_retention_ms: int


def digest(value: Column) -> Column:
    """Digest a value as bytes, null for none, with the columns timestamp and headers."""
    rest = f.concat_ws(
        "|",
        f.coalesce(f.length(value), f.lit(-1)).cast("string"),
        f.unix_micros("timestamp").cast("string"),
        f.coalesce(f.to_json("headers"), f.lit("")),
    )
    everything = f.concat(f.coalesce(value, f.lit(b"")), rest.cast("binary"))
    return f.unhex(f.sha2(everything, 256))


def reduced(records: DataFrame, values: ValueFormat = _RAW) -> DataFrame:
    """Turn records into rows of a reading; digests are of the decoded values."""
    arrived = records.withColumns(
        {
            "is_tombstone": f.col("value").isNull(),
            "arrival": f.monotonically_increasing_id(),
        }
    )
    read = read_values(arrived, values)
    return read.select(
        "partition",
        "offset",
        "key",
        "is_tombstone",
        f.unix_millis("timestamp").alias("timestamp_ms"),
        digest(value_bytes(read)).alias("digest"),
        "arrival",
    )


def value_bytes(rows: DataFrame) -> Column:
    """Return the column ``value`` as bytes: itself, or as JSON if it was decoded."""
    value = f.col("value")
    if isinstance(rows.schema["value"].dataType, BinaryType):
        return value
    return f.to_json(value).cast("binary")


class Readable(Protocol):
    """A compacted topic to read; its methods raise PipelineError."""

    def begin(self, spark: SparkSession) -> Reading:
        """Describe the topic as it is now; it must exist and be compacted."""

    def records(self, spark: SparkSession, reading: Reading) -> DataFrame:
        """Return the committed records below the ends of a reading."""


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """A topic that brokers serve."""

    source: TopicSource

    def begin(self, spark: SparkSession) -> Reading:
        """Ask the brokers."""
        topic = str(self.source.topic)
        with open_admin(spark, self.source) as admin:
            require_compacted(admin, self.source)
            return Reading(
                topic,
                int(time.time() * 1000),
                admin.offsets(topic, earliest=True),
                admin.offsets(topic),
                int(admin.config(topic, "min.compaction.lag.ms")),
                int(admin.config(topic, "delete.retention.ms")),
            )

    def records(self, spark: SparkSession, reading: Reading) -> DataFrame:
        """Read them with Spark's Kafka source."""
        ends = json.dumps({reading.topic: reading.ends})
        # Records below the start may be gone by now: that is no loss.
        source = committed(self.source)
        return read_batch(spark, replace(source, ending_offsets=ends, fail_on_data_loss=False))


def take(
    spark: SparkSession, topic: Readable, folder: str, values: ValueFormat = _RAW
) -> Reading:
    """Read a whole topic, and keep the reading in a folder.

    Raises PipelineError for a topic that is not compacted, or does not exist.
    """
    reading = topic.begin(spark)
    remove(spark, f"{folder}/records")
    records = topic.records(spark, reading)
    reduced(records, values).write.parquet(f"{folder}/records")
    write_text(spark, f"{folder}/reading.json", json.dumps(asdict(reading)))
    return reading


def is_there(spark: SparkSession, folder: str) -> bool:
    """Return whether a folder holds a whole reading."""
    return exists(spark, f"{folder}/reading.json")


def load(spark: SparkSession, folder: str, topic: str) -> tuple[Reading, DataFrame]:
    """Return a reading and its rows.

    Raises PipelineError for a reading of another topic.
    """
    document = json.loads(read_text(spark, f"{folder}/reading.json"))
    for name in ("starts", "ends"):
        document[name] = {int(partition): offset for partition, offset in document[name].items()}
    reading = Reading(**document)
    if reading.topic != topic:
        raise PipelineError(
            f"{folder} holds a reading of topic {reading.topic}: name that, or another folder"
        )
    return reading, spark.read.parquet(f"{folder}/records")
