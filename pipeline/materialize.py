"""Keep the latest value of every key of a topic as a table of Delta Lake or Apache Iceberg.

It runs until it is stopped, or with ``--available-now`` until the table has all records that the
topic held at the start. `pipeline.materializing` describes the method.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

import click

from odradek.pipeline.connector import KAFKA
from odradek.pipeline.formats import PACKAGES, ValueFormat
from odradek.pipeline.kept_table import KeptTable, Merged
from odradek.pipeline.latest import wait
from odradek.pipeline.materializing import MaterializeJob, start
from odradek.pipeline.options import (
    errors_in_one_line,
    pairs,
    run_command,
    session_options,
    source_options,
)
from odradek.pipeline.session import SessionOptions, open_session
from odradek.pipeline.source import TopicSource, require_broker, stream_options
from odradek.pipeline.table_options import table_options
from odradek.pipeline.values import value_options


@click.command("materialize")
@source_options
@click.option(
    "--max-offsets-per-trigger", type=int, help="Read at most this many offsets a batch."
)
@click.option(
    "--table",
    required=True,
    metavar="FOLDER|NAME",
    help="Folder of the Delta table, or the Iceberg table's name: NAMESPACE.TABLE.",
)
@click.option(
    "--checkpoint",
    metavar="FOLDER",
    help="Folder of the job's progress; belongs to the table.  [default for delta: "
    "TABLE/_checkpoint]",
)
@table_options
@value_options
@click.option(
    "--keep-mismatched",
    is_flag=True,
    help="Keep values that do not fit the schema, as bytes in the column mismatched.",
)
@click.option("--available-now", is_flag=True, help="Read the topic's present records, then exit.")
@click.option(
    "--interval-seconds",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Start a batch this often; 0 starts the next at once.",
)
@click.option(
    "--reconcile",
    is_flag=True,
    help="First delete the rows whose key the topic no longer has; reads the whole topic.",
)
@click.option(
    "--table-property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a property of Delta's or Iceberg's on a new table.",
)
@session_options
def materialize_command(
    *,
    source: TopicSource,
    session: SessionOptions,
    table: KeptTable,
    checkpoint: str,
    values: ValueFormat,
    keep_mismatched: bool,
    available_now: bool,
    interval_seconds: int,
    reconcile: bool,
    properties: Sequence[str],
) -> None:
    """Keep the latest value of every key of a topic as a Delta Lake or Iceberg table."""
    job = MaterializeJob(
        source=source,
        table=table,
        checkpoint=checkpoint,
        values=values,
        keep_mismatched=keep_mismatched,
        available_now=available_now,
        interval_seconds=interval_seconds,
        properties=pairs("--table-property", properties),
    )
    session = replace(session, packages=(KAFKA, *table.packages, *PACKAGES[values.format]))
    with errors_in_one_line(source, debug=session.debug):
        stream_options(source)  # before Java starts, which takes some seconds
        require_broker(source.bootstrap_servers)
        with open_session(session) as spark:
            reconciled = _report_deleted if reconcile else None
            wait(start(spark, job, _report_merged, reconciled=reconciled))
            if table.is_there(spark):
                click.echo(f"{table.name}: {table.read(spark).count()} keys")
            else:
                click.echo(f"{table.name}: no batch yet of {source.what}")


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code."""
    return run_command(materialize_command, argv)


def _report_merged(batch_id: int, merged: Merged) -> None:
    click.echo(
        f"committed batch={batch_id} inserted={merged.inserted} updated={merged.updated} "
        f"deleted={merged.deleted}"
    )


def _report_deleted(deleted: int) -> None:
    click.echo(f"reconciled deleted={deleted}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
