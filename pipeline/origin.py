"""The origin of a table to publish: a file, a database, or generated rows.

Spark's own readers read the table, in any format that they know.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

import click
from pyspark.sql import DataFrame, SparkSession

from odradek.dataclass import dataclass
from odradek.pipeline.options import decorated, pairs
from odradek.pipeline.tickets import tickets


@dataclass(frozen=True, slots=True)
class TableSource:
    """The place of a table: a path or a JDBC address, Spark's name of its format, and options."""

    path: str
    format: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the table's rows, or the rows that meet the condition in SQL."""
        options = dict(self.options)
        if self._format == "csv":
            options = {"header": "true", "inferSchema": "true"} | options
        if self._format == "jdbc":
            table = spark.read.format("jdbc").options(**{"url": self.path} | options).load()
        else:
            table = spark.read.format(self._format).options(**options).load(self.path)
        return table.where(self.where) if self.where else table

    @property
    def _format(self) -> str:
        if self.format:
            return self.format
        if self.path.startswith("jdbc:"):
            return "jdbc"
        return "csv" if self.path.endswith((".csv", ".csv.gz")) else "parquet"


@dataclass(frozen=True, slots=True)
class Tickets:
    """A generated table: a number of tickets of equal size; see `pipeline.tickets`."""

    count: int
    bytes_each: int = 5000
    accounts: int = 1000
    version: int = 1

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the table's rows."""
        return tickets(
            spark,
            self.count,
            bytes_each=self.bytes_each,
            accounts=self.accounts,
            version=self.version,
        )


_OPTIONS = (
    click.option(
        "--table", metavar="PATH", help="A path, or a JDBC address such as jdbc:postgresql:…"
    ),
    click.option(
        "--format",
        "format_",
        default="",
        metavar="NAME",
        help="Spark's name of the table's format.  [default: jdbc for jdbc:…, csv for ….csv, "
        "else parquet]",
    ),
    click.option(
        "--table-option",
        "table_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set an option of Spark's reader of tables, such as dbtable=tickets.",
    ),
    click.option("--where", metavar="SQL", help="Publish only the rows that meet this condition."),
    click.option(
        "--tickets",
        type=click.IntRange(min=1),
        help="Publish this number of generated tickets instead of a table.",
    ),
    click.option(
        "--bytes",
        "bytes_each",
        type=click.IntRange(min=1),
        default=5000,
        show_default=True,
        help="The size of a ticket in bytes.",
    ),
    click.option(
        "--accounts",
        type=click.IntRange(min=1),
        default=1000,
        show_default=True,
        help="Spread the tickets over this number of accounts.",
    ),
    click.option(
        "--version",
        "version_",
        type=int,
        default=1,
        show_default=True,
        help="Another number gives the same tickets other contents.",
    ),
)


def origin_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a table; the command gets its origin as ``origin``."""

    @functools.wraps(command)
    def with_origin(
        *,
        table: str | None,
        format_: str,
        table_options: Sequence[str],
        where: str | None,
        tickets: int | None,
        bytes_each: int,
        accounts: int,
        version_: int,
        **others: object,
    ) -> None:
        origin: TableSource | Tickets
        if table is not None and tickets is None:
            origin = TableSource(table, format_, pairs("--table-option", table_options), where)
        elif tickets is not None and table is None:
            origin = Tickets(tickets, bytes_each, accounts, version_)
        else:
            raise click.UsageError("name the rows to publish with one of --table and --tickets")
        command(origin=origin, **others)

    return decorated(with_origin, _OPTIONS)
