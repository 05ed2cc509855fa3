"""Print a topic's records as Spark reads them, or a table that `pipeline.latest` keeps.

    partition  offset  timestamp                key  value
            0       3  2025-05-01 10:00:00.003  p3   11
            0       6  2025-05-01 10:00:00.006  p6   12

A batch read to the end of a compacted topic is also the shortest proof that a reader crosses the
gaps that cleaning leaves between offsets.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence

import click
from pyspark.sql import DataFrame, Row, SparkSession

from odradek.pipeline.options import (
    errors_in_one_line,
    run_command,
    session_options,
    source_options,
)
from odradek.pipeline.session import SessionOptions, open_session
from odradek.pipeline.source import TopicSource, batch_options, read_batch, require_broker
from odradek.pipeline.table import read_table
from odradek.pipeline.text import show_bytes

_HEADINGS = ("partition", "offset", "timestamp", "key", "value")


def read_rows(
    spark: SparkSession, source: TopicSource, table: str | None, limit: int
) -> list[Row]:
    """Read a topic, or a table if given, in order of topic, partition and offset."""
    records: DataFrame = read_table(spark, table) if table else read_batch(spark, source)
    rows: list[Row] = records.orderBy("topic", "partition", "offset").limit(limit).collect()
    return rows


def format_rows(rows: Iterable[Row]) -> Iterator[str]:
    """Lay rows out as lines of aligned columns, with one line of headings above them."""
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
    for line in cells:
        numbers = (cell.rjust(width) for cell, width in zip(line[:2], widths[:2], strict=True))
        texts = (cell.ljust(width) for cell, width in zip(line[2:], widths[2:], strict=True))
        yield "  ".join((*numbers, *texts)).rstrip()


@click.command("read")
@source_options
@click.option(
    "--ending-offsets",
    default="latest",
    show_default=True,
    metavar="OFFSETS",
    help='The offsets to end at: latest, or JSON such as {"prices": {"0": 42}}.',
)
@click.option("--table", metavar="FOLDER", help="Print this table instead of a topic.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Print at most this many records.",
)
@session_options
def read_command(
    *, source: TopicSource, session: SessionOptions, table: str | None, limit: int
) -> None:
    """Print a topic's records, or the rows of a table."""
    if table and (source.topic or source.subscribe_pattern):
        raise click.UsageError("name either a topic or a table to print, not both")
    with errors_in_one_line(source, debug=session.debug):
        if table is None:
            batch_options(source)  # before Java starts, which takes some seconds
            require_broker(source.bootstrap_servers)
        with open_session(session) as spark:
            rows = read_rows(spark, source, table, limit)
    for line in format_rows(rows):
        click.echo(line)


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code."""
    return run_command(read_command, argv)


def _cells(row: Row) -> tuple[str, ...]:
    timestamp = row["timestamp"].isoformat(" ", "milliseconds")
    return (
        str(row["partition"]),
        str(row["offset"]),
        timestamp,
        show_bytes(row["key"]),
        show_bytes(row["value"]),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
