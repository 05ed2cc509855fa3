"""A reading of a shared topic from the bucket, without a broker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.dataclass import dataclass
from odradek.pipeline.admin import require_compaction
from odradek.pipeline.guarantees import with_bound
from odradek.pipeline.reading import Reading
from odradek.pipeline.segment_selection import parse_options
from odradek.pipeline.segment_source import read_segments
from odradek.pipeline.source import RECORD_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SharedTopic:
    """A topic in an object store, by options of the segments' data source."""

    topic: str
    options: Mapping[str, str]

    def begin(self, spark: SparkSession) -> Reading:
        """Read the catalog, and the ends of transactions from the bucket."""
        from odradek.pipeline.shared_segments import find_shared_logs, shared_topic_config
        from odradek.pipeline.shared_transactions import OpenTransactions

        at_ms = int(time.time() * 1000)
        parsed = parse_options({**self.options, "topic": self.topic})
        logs = find_shared_logs(parsed, parsed.selection)
        config = shared_topic_config(parsed, self.topic)
        require_compaction(self.topic, sorted(config.cleanup_policy))
        return Reading(
            self.topic,
            at_ms,
            {one.snapshot.number: one.snapshot.log_start_offset for one in logs},
            {one.snapshot.number: OpenTransactions(one).stable_offset(one) for one in logs},
            config.min_compaction_lag_ms,
            config.delete_retention_ms,
        )

    def records(self, spark: SparkSession, reading: Reading) -> DataFrame:
        """Read the segments."""
        columns = {"columns": ",".join(RECORD_COLUMNS), "isolation": "read_committed"}
        found = read_segments(spark, **{**self.options, "topic": self.topic}, **columns)
        return with_bound(found, reading.ends, "end").where("offset < end").drop("end")
