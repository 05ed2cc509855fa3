"""Keep a Delta Lake table with one row for each key of a topic (`pipeline.kept_table`).

The table's property ``odradek.query`` names the streaming query that wrote it, and the user
metadata of each commit name the batch of that query.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from odradek.dataclass import dataclass
from odradek.pipeline.checkpoint import Progress
from odradek.pipeline.connector import DELTA, Package
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.files import exists, qualify
from odradek.pipeline.kept_table import (
    QUERY,
    Merged,
    delete_statement,
    merge_statement,
    require_columns,
)

_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

# The search for the job's last commit covers this many commits, with others such as OPTIMIZE.
_HISTORY_COMMITS = 200


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A Delta Lake table in a folder, which is its name."""

    name: str

    @property
    def packages(self) -> Sequence[Package]:
        """Return Delta Lake's package."""
        return (DELTA,)

    def is_there(self, spark: SparkSession) -> bool:
        """Return whether the folder holds a Delta Lake table."""
        return exists(spark, f"{self.name}/_delta_log")

    def read(self, spark: SparkSession) -> DataFrame:
        """Read the table as it is now.

        Raises PipelineError where there is none.
        """
        if not self.is_there(spark):
            raise PipelineError(
                f"{self.name} holds no Delta Lake table: run odradek pipeline materialize first"
            )
        return spark.read.format("delta").load(self.name)

    def read_kept(self, spark: SparkSession) -> tuple[Progress, DataFrame]:
        """Read the table as it was after its last batch, even while a job writes to it.

        Raises PipelineError where there is no table, or no batch of a job in it.
        """
        self.read(spark)
        for row in self._history(spark):
            progress = _understood(row["userMetadata"])
            if progress is not None and progress.batch_id >= 0:
                reader = spark.read.format("delta").option("versionAsOf", str(row["version"]))
                return progress, reader.load(self.name)
        raise PipelineError(f"{self.name} holds no batch of odradek pipeline materialize")

    def progress(self, spark: SparkSession) -> Progress | None:
        """Read the query that wrote the table, and its last batch in the table."""
        if not self.is_there(spark):
            return None
        properties = spark.sql(f"SHOW TBLPROPERTIES {self._quoted(spark)}")
        found = properties.where(f.col("key") == QUERY).collect()
        if not found:
            return Progress("", -1)
        for row in self._history(spark):
            progress = _understood(row["userMetadata"])
            if progress is not None and progress.query_id == found[0]["value"]:
                return progress
        return Progress(found[0]["value"], -1)

    def create(self, rows: DataFrame, progress: Progress, properties: Mapping[str, str]) -> None:
        """Create the table, empty, for rows like these; it belongs to a query."""
        writer = rows.drop("is_tombstone").limit(0).write.format("delta")
        for name, value in properties.items():
            writer = writer.option(name, value)
        writer.option("userMetadata", _metadata_of(progress)).save(self.name)
        self._note_query(rows.sparkSession, progress)

    def merge(self, rows: DataFrame, progress: Progress) -> Merged:
        """Apply the last records of keys to the table, and note their batch, in one commit.

        Raises PipelineError where the columns are not the table's.
        """
        spark = rows.sparkSession
        held = spark.read.format("delta").load(self.name)
        require_columns(self.name, held, rows.drop("is_tombstone"))
        statement = merge_statement(self._quoted(spark), rows)
        with _noting(spark, progress):
            counts = spark.sql(statement).collect()[0]
        return Merged(
            counts["num_inserted_rows"], counts["num_updated_rows"], counts["num_deleted_rows"]
        )

    def note_batch(self, spark: SparkSession, progress: Progress) -> None:
        """Note a batch with nothing to merge."""
        with _noting(spark, progress):
            self._note_query(spark, progress)

    def delete_missing(self, keys: DataFrame) -> int:
        """Delete the rows whose key is not among these, and return their number."""
        spark = keys.sparkSession
        counts = spark.sql(delete_statement(self._quoted(spark), keys)).collect()[0]
        deleted: int = counts["num_deleted_rows"]
        return deleted

    def _note_query(self, spark: SparkSession, progress: Progress) -> None:
        note = f"'{QUERY}' = '{progress.query_id}'"
        spark.sql(f"ALTER TABLE {self._quoted(spark)} SET TBLPROPERTIES ({note})")

    def _history(self, spark: SparkSession) -> list[Row]:
        """Return the last commits, the newest first."""
        history = spark.sql(f"DESCRIBE HISTORY {self._quoted(spark)} LIMIT {_HISTORY_COMMITS}")
        rows: list[Row] = history.orderBy(f.desc("version")).collect()
        return rows

    def _quoted(self, spark: SparkSession) -> str:
        # In SQL, Delta Lake does not accept a relative path of a table.
        return f"delta.`{qualify(spark, self.name).replace('`', '``')}`"


@contextmanager
def _noting(spark: SparkSession, progress: Progress) -> Iterator[None]:
    """Have the commits of a session name a batch."""
    spark.conf.set(_USER_METADATA, _metadata_of(progress))
    try:
        yield
    finally:
        spark.conf.unset(_USER_METADATA)


def _metadata_of(progress: Progress) -> str:
    return json.dumps({"query": progress.query_id, "batch": progress.batch_id})


def _understood(metadata: str | None) -> Progress | None:
    try:
        fields = json.loads(metadata or "")
        return Progress(str(fields["query"]), int(fields["batch"]))
    except (ValueError, KeyError, TypeError):
        return None
