"""Keep a publication: the records to send to a topic, and the progress.

    <work>/publication/
      plan.json               topic and counts of records; written last: then the folder is whole
      records/part-….parquet  the records in order of key, a file for each chunk
      sent/0000000017         a file for each chunk that the broker has acknowledged

The folder exists from the first row written until the last record is sent.

All records are fixed before the first one is sent. So a publication that was killed continues with
the same records, even if the table has changed, and sends at most its present chunk again: each
key is in it once, so that a record sent twice has the same effect.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.files import exists, list_names, read_text, remove, write_text

_NAME = "publication"
_PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """A publication's topic, and its counts of records and of the tombstones among them."""

    topic: str
    records: int
    tombstones: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A file of records, by its number in the order of sending."""

    number: int
    path: str


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication in its folder."""

    folder: str
    plan: Plan
    chunks: Sequence[Chunk]

    def unsent(self, spark: SparkSession) -> list[Chunk]:
        """Return the chunks that are not sent yet, in order."""
        sent = {int(name) for name in list_names(spark, f"{self.folder}/sent") if name.isdigit()}
        return [chunk for chunk in self.chunks if chunk.number not in sent]

    def note_sent(self, spark: SparkSession, chunk: Chunk) -> None:
        """Note that the broker has acknowledged a chunk."""
        write_text(spark, f"{self.folder}/sent/{chunk.number:010d}", "")

    def forget(self, spark: SparkSession) -> None:
        """Remove a finished publication."""
        # The plan goes first: half a folder must not look like a publication.
        remove(spark, f"{self.folder}/{_PLAN}")
        remove(spark, self.folder)


def unfinished(spark: SparkSession, work: str) -> Publication | None:
    """Return the unfinished publication in a folder, or None."""
    folder = f"{work}/{_NAME}"
    return _open(spark, folder) if exists(spark, f"{folder}/{_PLAN}") else None


def settle(
    spark: SparkSession, work: str, topic: str, records: DataFrame, chunk_records: int
) -> Publication:
    """Write the records to send, in the order of keys.

    ``records`` has binary columns ``key`` and ``value``. Raises PipelineError without a record.
    """
    folder = f"{work}/{_NAME}"
    remove(spark, folder)  # left by a publication that was killed before it was whole
    records.write.mode("overwrite").parquet(f"{folder}/unordered")
    unordered = spark.read.parquet(f"{folder}/unordered")
    counts = unordered.agg(f.count("*"), f.count_if(f.col("value").isNull())).collect()[0]
    if not counts[0]:
        remove(spark, folder)
        raise PipelineError("the table has no rows to publish")
    files = math.ceil(counts[0] / chunk_records)
    ordered = unordered.repartitionByRange(files, "key").sortWithinPartitions("key")
    ordered.write.mode("overwrite").parquet(f"{folder}/records")
    remove(spark, f"{folder}/unordered")
    plan = Plan(topic, records=counts[0], tombstones=counts[1])
    write_text(spark, f"{folder}/{_PLAN}", json.dumps(asdict(plan)))
    return _open(spark, folder)


def _open(spark: SparkSession, folder: str) -> Publication:
    plan = Plan(**json.loads(read_text(spark, f"{folder}/{_PLAN}")))
    names = sorted(name for name in list_names(spark, f"{folder}/records") if name[:5] == "part-")
    chunks = [Chunk(number, f"{folder}/records/{name}") for number, name in enumerate(names)]
    return Publication(folder, plan, chunks)
