"""Tables without borders, as all commands print them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from odradek.config.printable import printable

# Wide enough for any name: output to a pipe has one row per line, for grep and awk.
_PIPE_COLUMNS = 10_000


def new_table(*, has_header: bool = True) -> Table:
    """Return an empty table."""
    return Table(
        box=None, show_header=has_header, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0)
    )


def print_table(console: Console, table: Table) -> None:
    """Print a table without trailing blanks."""
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=console.is_terminal)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below titles; a title that ends with ">" aligns its column to the right.

    None is shown as "-". A terminal folds long cells; a pipe gets one line per row.
    """
    table = new_table()
    for title in columns:
        right = title.endswith(">")
        table.add_column(
            title.rstrip(">"), justify="right" if right else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    is_terminal = sys.stdout.isatty()
    print_table(Console(highlight=False, width=None if is_terminal else _PIPE_COLUMNS), table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
