"""The contract of a table with one row for each key of a topic, in any format.

The table's rows have the columns ``topic``, ``partition``, ``key``, ``value``, ``offset``,
``timestamp`` and ``headers``, and ``mismatched`` where values are read by a schema. ``value`` is
binary, or a struct of the schema's fields.

Offsets decide. A record that is older than the row of its key, or the same record, changes
nothing; so a batch may be applied twice, or half of it before a crash:

    table      batch                 table after it, however often
    p3 @ 3     p3 @ 6  value         p3 @ 6
    p5 @ 4     p5 @ 7  tombstone
    p6 @ 9     p6 @ 8  value         p6 @ 9

A property of the table names the streaming query that wrote it, and each commit of a batch names
the query and the batch, so that a checkpoint that belongs to another table, or to another state of
it, is refused.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from odradek.dataclass import dataclass
from odradek.pipeline.checkpoint import Progress
from odradek.pipeline.connector import Package
from odradek.pipeline.errors import PipelineError

# The property of a table that names the query which writes it.
QUERY = "odradek.query"

# The rules by which a record s of a batch changes the row t of its key.
IDENTITY = "t.topic = s.topic AND t.partition = s.partition AND t.key = s.key"
DELETES = "s.offset > t.offset AND s.is_tombstone"
UPDATES = "s.offset > t.offset AND NOT s.is_tombstone"
INSERTS = "NOT s.is_tombstone"


@dataclass(frozen=True, slots=True)
class Merged:
    """The effect of a batch on a table: counts of rows."""

    inserted: int
    updated: int
    deleted: int


class KeptTable(Protocol):
    """A table of some format; every commit of it is seen as a whole or not at all."""

    @property
    def name(self) -> str:
        """Return the name by which the user knows the table."""

    @property
    def packages(self) -> Sequence[Package]:
        """Return the packages that a session needs to use the table."""

    def is_there(self, spark: SparkSession) -> bool:
        """Return whether the table exists."""

    def read(self, spark: SparkSession) -> DataFrame:
        """Read the table as it is now.

        Raises PipelineError where there is none.
        """

    def read_kept(self, spark: SparkSession) -> tuple[Progress, DataFrame]:
        """Read the table as it was after its last batch, even while a job writes to it.

        Raises PipelineError where there is no table, or no batch of a job in it.
        """

    def progress(self, spark: SparkSession) -> Progress | None:
        """Read the query that wrote the table, and its last batch in the table.

        None without a table. The batch is -1 where the table's history has been cut off since.
        """

    def create(self, rows: DataFrame, progress: Progress, properties: Mapping[str, str]) -> None:
        """Create the table, empty, for rows like these; it belongs to a query.

        ``rows`` has the table's columns and ``is_tombstone``. ``properties`` are the format's.
        """

    def merge(self, rows: DataFrame, progress: Progress) -> Merged:
        """Apply the last records of keys to the table, and note their batch, in one commit.

        ``rows`` is as for `create`. Raises PipelineError where its columns are not the table's.
        """

    def note_batch(self, spark: SparkSession, progress: Progress) -> None:
        """Note a batch with nothing to merge."""

    def delete_missing(self, keys: DataFrame) -> int:
        """Delete the rows whose key is not among these, and return their number."""


def merge_statement(table: str, rows: DataFrame) -> str:
    """Write the MERGE of rows, which become the temporary view ``odradek_batch``.

    ``table`` is quoted for SQL; the names of columns are this project's.
    """
    rows.createOrReplaceTempView("odradek_batch")
    columns = [column for column in rows.columns if column != "is_tombstone"]
    assignments = ", ".join(f"t.{column} = s.{column}" for column in columns)
    values = ", ".join(f"s.{column}" for column in columns)
    return (
        f"MERGE INTO {table} t USING odradek_batch s ON {IDENTITY} "  # noqa: S608 - of our table
        f"WHEN MATCHED AND {DELETES} THEN DELETE "
        f"WHEN MATCHED AND {UPDATES} THEN UPDATE SET {assignments} "
        f"WHEN NOT MATCHED AND {INSERTS} THEN INSERT ({', '.join(columns)}) "
        f"VALUES ({values})"
    )


def delete_statement(table: str, keys: DataFrame) -> str:
    """Write the MERGE that deletes rows without a key in the temporary view ``odradek_keys``.

    ``table`` is quoted for SQL.
    """
    keys.select("topic", "partition", "key").distinct().createOrReplaceTempView("odradek_keys")
    return (
        f"MERGE INTO {table} t USING odradek_keys s ON {IDENTITY} "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )


def require_columns(table: str, held: DataFrame, rows: DataFrame) -> None:
    """Refuse rows whose columns are not those of a table.

    Raises PipelineError, which names the columns that differ.
    """
    before, now = ({field.name: field.dataType for field in one.schema} for one in (held, rows))
    if before != now:
        changed = ", ".join(
            f"{name} is {before[name].simpleString() if name in before else 'not there'}, "
            f"not {now[name].simpleString() if name in now else 'there'}"
            for name in before | now
            if before.get(name) != now.get(name)
        )
        raise PipelineError(
            f"in {table} the column {changed}: give the --format and --schema that it was created "
            "with, or a new --table and a new --checkpoint"
        )
