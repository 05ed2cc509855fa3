"""Tables without lines, as all commands print them."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table


def new_table(*, has_header: bool = True) -> Table:
    """Return an empty table."""
    return Table(
        box=None, show_header=has_header, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0)
    )


def print_table(console: Console, table: Table) -> None:
    """Print a table, its lines as long as what is in them."""
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=console.is_terminal)
