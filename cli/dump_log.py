"""odradek dump-log: prints the contents of files in a log directory, as kafka-dump-log does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from odradek.config.printable import printable


@click.command("dump-log")
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="FILE|DIR...",
    type=click.Path(exists=True, path_type=Path),
)
@click.option("--records", is_flag=True, help="Print each record: its key, value and headers.")
@click.option(
    "--deep", is_flag=True, help="Decode every record, and compare indexes with their logs."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
def dump_log(paths: Sequence[Path], records: bool, deep: bool, as_json: bool) -> None:
    """Print the contents of segments, indexes, snapshots and checkpoints.

    A directory stands for all such files in and below it. Files may be Odradek's or Apache
    Kafka's; nothing is repaired, and a broker may be using them. A batch is a row. Keys and
    values are printed as text, else as base64; records of Kafka's internal topics are decoded.

    Each damage is reported in one line, with the file, the position and the offset; then the
    exit status is 1.

    Example: odradek dump-log data/orders-0 --records
    """
    from odradek.cli.dump_rows import Wanted
    from odradek.cli.dump_show import Table, dump, files_of, show_json

    show = show_json if as_json else Table().show
    failed = False
    for path in paths:
        for file in files_of(path):
            for damage in dump(file, Wanted(records, deep), show):
                failed = True
                sys.stdout.flush()  # rows that could be read come first
                click.echo(f"odradek: {printable(str(damage))}", err=True)
    sys.exit(1 if failed else 0)
