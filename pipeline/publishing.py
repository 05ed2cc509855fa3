"""Send a table to a compacted topic: a record with a key for each row.

A job fixes the records to send (see `pipeline.publication`), then sends them chunk by chunk with
Spark's Kafka sink, which gives each key the partition that Kafka's own Java producer would.
"""

import threading
import time
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.keyed import Keyed, as_records, require_unique_keys, tombstones_of_missing
from odradek.pipeline.origin import TableSource, Tickets
from odradek.pipeline.per_key import latest_per_key
from odradek.pipeline.publication import Chunk, Publication, settle, unfinished
from odradek.pipeline.source import TopicSource, client_options, committed, read_batch

CHUNK_RECORDS = 100_000

# Fewer requests for the same records; --option overrides these settings.
_PRODUCER_DEFAULTS = {"kafka.linger.ms": "20", "kafka.batch.size": "131072"}


@dataclass(frozen=True, slots=True)
class PublishJob:
    """A table to publish, and its topic. Without ``records_per_second`` the rate has no bound.

    With ``delete_missing``, keys of the topic that are not in the table are deleted from it.
    """

    source: TopicSource
    origin: TableSource | Tickets
    keyed: Keyed
    work: str
    delete_missing: bool = False
    records_per_second: int | None = None
    chunk_records: int = CHUNK_RECORDS


@dataclass(frozen=True, slots=True)
class Sent:
    """The progress of a publication: records sent by this run, sent in all, and planned."""

    records: int
    records_in_all: int
    records_planned: int
    seconds: float


def prepare(spark: SparkSession, job: PublishJob) -> tuple[Publication, bool]:
    """Return an unfinished publication or else a new one, and whether it is unfinished.

    Raises PipelineError for a table without keys that identify its rows.
    """
    begun = unfinished(spark, job.work)
    if begun is not None:
        if begun.plan.topic != job.source.topic:
            raise PipelineError(
                f"{job.work} holds an unfinished publication to topic {begun.plan.topic}: finish "
                "that, remove the folder, or name another --work"
            )
        return begun, True
    records = as_records(job.origin.read(spark), job.keyed)
    require_unique_keys(records)
    if job.delete_missing:
        latest = latest_per_key(read_batch(spark, committed(job.source)))
        records = records.unionByName(tombstones_of_missing(records, latest))
    size = min(job.chunk_records, job.records_per_second or job.chunk_records)
    return settle(spark, job.work, str(job.source.topic), records, size), False


def send(
    spark: SparkSession,
    job: PublishJob,
    publication: Publication,
    report: Callable[[Sent], None],
    asked_to_stop: threading.Event,
) -> bool:
    """Send the chunks that are not sent yet; return False when a stop is requested before."""
    unsent = publication.unsent(spark)
    before = publication.plan.records - _count(spark, unsent)
    sent, started = 0, time.monotonic()
    for chunk in unsent:
        records = spark.read.parquet(chunk.path)
        _write(records, job.source)
        publication.note_sent(spark, chunk)
        sent += records.count()  # the file's footer holds it: no data is read
        if job.records_per_second:
            asked_to_stop.wait(started + sent / job.records_per_second - time.monotonic())
        seconds = time.monotonic() - started
        report(Sent(sent, before + sent, publication.plan.records, seconds))
        if asked_to_stop.is_set() and chunk is not unsent[-1]:
            return False
    publication.forget(spark)
    return True


def _write(records: DataFrame, source: TopicSource) -> None:
    options = _PRODUCER_DEFAULTS | client_options(source) | {"topic": str(source.topic)}
    records.write.format("kafka").options(**options).save()


def _count(spark: SparkSession, chunks: Sequence[Chunk]) -> int:
    return spark.read.parquet(*(chunk.path for chunk in chunks)).count() if chunks else 0
