"""Read the checkpoint of a Spark streaming query.

    <checkpoint>/
      metadata       {"id": "<query id>"}
      offsets/7      the offsets of batch 7, written before it runs: a line "v1", a line about the
                     batch, and for each source {"<topic>": {"<partition>": <ending offset>}}
      commits/7      written after it ran
"""

import json
import re
from collections.abc import Mapping

from pyspark.sql import SparkSession

from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.files import exists, list_names, read_text


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a checkpoint: its query, and its last committed batch (-1 for none)."""

    query_id: str
    batch_id: int


def checkpoint_progress(spark: SparkSession, checkpoint: str) -> Progress | None:
    """Read the progress of a streaming query's checkpoint; None before the query's start.

    Raises PipelineError for a checkpoint that is not Spark's.
    """
    if not exists(spark, f"{checkpoint}/metadata"):
        return None
    metadata = read_text(spark, f"{checkpoint}/metadata")
    found = re.search(r'"id"\s*:\s*"([0-9a-f-]{36})"', metadata)
    if found is None:
        raise PipelineError(
            f"{checkpoint}/metadata names no query: give a new --checkpoint and a new --table"
        )
    names = list_names(spark, f"{checkpoint}/commits")
    return Progress(found[1], max((int(name) for name in names if name.isdigit()), default=-1))


def ending_offsets(
    spark: SparkSession, checkpoint: str, batch_id: int
) -> Mapping[str, Mapping[int, int]]:
    """Read the end offsets of a batch of a Kafka source, exclusive, by topic and partition."""
    lines = read_text(spark, f"{checkpoint}/offsets/{batch_id}").splitlines()
    return {
        topic: {int(partition): int(offset) for partition, offset in partitions.items()}
        for topic, partitions in json.loads(lines[2]).items()
    }


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
