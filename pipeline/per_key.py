"""Keep each key's last record, as in a topic that is compacted completely.

A key is a key of its partition, as it is for the broker's cleaner, because Kafka orders records
only within one. A record without a key replaces nothing and is left out.

Both functions take and return the columns of `pipeline.source.RECORD_COLUMNS`, and are pure: the
result depends on the set of records, never on their order or their repetition.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from odradek.pipeline.source import RECORD_COLUMNS


def last_per_key(records: DataFrame) -> DataFrame:
    """Keep each key's last record, tombstones too."""
    last = f.max_by(f.struct("value", "timestamp", "headers"), "offset").alias("last")
    return (
        records.where(f.col("key").isNotNull())
        .groupBy("topic", "partition", "key")
        .agg(last, f.max("offset").alias("offset"))
        .select("*", "last.*")
        .select(*RECORD_COLUMNS)
    )


def latest_per_key(records: DataFrame) -> DataFrame:
    """Keep each key's last record, without the keys whose last record is a tombstone."""
    return last_per_key(records).where(f.col("value").isNotNull())
