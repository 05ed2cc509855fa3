"""odradek dump-log: prints what the files of a log directory hold, as kafka-dump-log does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from config.printable import printable


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
    "--deep", is_flag=True, help="Decode every record, and hold indexes against their logs."
)
@click.option("--json", "as_json", is_flag=True, help="Print an object a line.")
def dump_log(paths: Sequence[Path], records: bool, deep: bool, as_json: bool) -> None:
    """Print what segments, indexes, snapshots and checkpoints hold.

    Of a directory all that lies in and below it. Files of Odradek and of Apache Kafka; nothing
    is repaired, and a broker may be running on them. A batch is a row; keys and values are
    printed as text, else as base64, and those of Kafka's internal topics in words.

    What is damaged is told in a line each, with the file, the position and the offset; then
    the exit status is 1.

    Example: odradek dump-log data/orders-0 --records
    """
    from cli.dump_rows import Wanted
    from cli.dump_show import Table, dump, files_of, show_json

    show = show_json if as_json else Table().show
    failed = False
    for path in paths:
        for file in files_of(path):
            for damage in dump(file, Wanted(records, deep), show):
                failed = True
                sys.stdout.flush()  # what could be read comes first
                click.echo(f"odradek: {printable(str(damage))}", err=True)
    sys.exit(1 if failed else 0)
