"""Keep the latest value of every key of a topic as a table, continuously.

Each micro-batch of a stream is merged into the table (`pipeline.kept_table`) in one commit.
Spark records the offsets of a batch before it runs the batch, and repeats exactly these after a
crash; a batch that is merged twice gives the same table. So each record counts exactly once.

Tombstones delete rows. The broker keeps a tombstone for ``delete.retention.ms`` after its cleaner
has reached it; a job that was stopped for longer may never see it, and would keep the row forever.
Such a job refuses to start without ``--reconcile``, which compares its table with the whole topic.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from odradek.dataclass import dataclass
from odradek.pipeline.admin import open_admin
from odradek.pipeline.checkpoint import Progress, checkpoint_progress, require_match
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.files import modified_ms
from odradek.pipeline.formats import Format, ValueFormat, read_values
from odradek.pipeline.kept_table import KeptTable, Merged
from odradek.pipeline.per_key import last_per_key
from odradek.pipeline.source import TopicSource, committed, read_batch, read_stream

# The local property in which code inside a batch finds the id of its query.
_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class MaterializeJob:
    """A source, a table to keep, and the job's progress.

    With ``available_now`` the job ends at the offsets that the topic has when it starts;
    otherwise it starts a batch every ``interval_seconds``. Values that do not fit the schema stop
    it, unless ``keep_mismatched``. ``properties`` are for a new table, and its format's.
    """

    source: TopicSource
    table: KeptTable
    checkpoint: str
    values: ValueFormat = field(default_factory=ValueFormat)
    keep_mismatched: bool = False
    available_now: bool = False
    interval_seconds: int = 10
    properties: Mapping[str, str] = field(default_factory=dict)


def as_rows(records: DataFrame, job: MaterializeJob) -> DataFrame:
    """Turn records into rows of the table: the last record of each key, with its value decoded.

    Adds ``is_tombstone``. Raises PipelineError for an invalid schema.
    """
    last = last_per_key(records).withColumn("is_tombstone", f.col("value").isNull())
    rows = read_values(last, job.values)
    return rows.drop("mismatched") if job.values.format is Format.RAW else rows


def apply_batch(job: MaterializeJob, records: DataFrame, progress: Progress) -> Merged:
    """Merge a batch into the table, which is created if necessary.

    Raises PipelineError for a value that does not fit the schema.
    """
    spark, table = records.sparkSession, job.table
    rows = as_rows(records, job).persist()
    try:
        if not job.keep_mismatched:
            _require_fitting(rows, job)
        if not table.is_there(spark):
            table.create(rows, replace(progress, batch_id=-1), job.properties)
        if rows.isEmpty():
            table.note_batch(spark, progress)
            return Merged(0, 0, 0)
        return table.merge(rows, progress)
    finally:
        rows.unpersist()


def start(
    spark: SparkSession,
    job: MaterializeJob,
    merged: Callable[[int, Merged], None],
    *,
    reconciled: Callable[[int], None] | None = None,
) -> StreamingQuery:
    """Start the job; ``merged`` gets each batch's number and its effect.

    With ``reconciled`` the table is compared with the whole topic first, and ``reconciled`` gets
    the number of deleted rows. Raises PipelineError where the table and the checkpoint do not
    belong together, or the job was stopped for so long that it may have missed deletes.
    """
    held = job.table.progress(spark)
    read = checkpoint_progress(spark, job.checkpoint)
    require_match(held, read, job.table.name, job.checkpoint)
    if held is not None and read is not None:
        if reconciled is not None:
            keys = read_batch(spark, committed(job.source)).where(f.col("key").isNotNull())
            reconciled(job.table.delete_missing(keys))
        elif read.batch_id >= 0:
            _require_no_missed_deletes(spark, job, read)

    def apply(records: DataFrame, batch_id: int) -> None:
        query_id = str(records.sparkSession.sparkContext.getLocalProperty(_QUERY_ID))
        merged(batch_id, apply_batch(job, records, Progress(query_id, batch_id)))

    writer = read_stream(spark, committed(job.source)).writeStream.foreachBatch(apply)
    writer = writer.option("checkpointLocation", job.checkpoint).queryName("materialize")
    if job.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{job.interval_seconds} seconds")
    return writer.start()


def _require_fitting(rows: DataFrame, job: MaterializeJob) -> None:
    if "mismatched" not in rows.columns:
        return
    found = rows.where("mismatched IS NOT NULL").orderBy("topic", "partition", "offset").first()
    if found is not None:
        raise PipelineError(
            f"the value at offset {found['offset']} of {found['topic']}-{found['partition']} does "
            f"not fit the {job.values.format} schema: correct --schema, or keep such values apart "
            "with --keep-mismatched"
        )


def _require_no_missed_deletes(spark: SparkSession, job: MaterializeJob, read: Progress) -> None:
    away_ms = time.time() * 1000 - modified_ms(spark, f"{job.checkpoint}/offsets/{read.batch_id}")
    with open_admin(spark, job.source) as admin:
        for topic in admin.topics(job.source):
            kept_ms = int(admin.config(topic, "delete.retention.ms"))
            if away_ms > kept_ms:
                raise PipelineError(
                    f"the job was stopped for {away_ms / 3_600_000:.1f} h and topic {topic} keeps "
                    f"tombstones for {kept_ms / 3_600_000:.1f} h (delete.retention.ms), so that "
                    "deletes may have been missed: run it once with --reconcile, which compares "
                    "the table with the whole topic"
                )
