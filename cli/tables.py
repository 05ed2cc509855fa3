"""Tables without borders, as all commands print them.

Names and numbers are never broken. On a narrow terminal the texts of the other columns wrap, down
to their longest words; after that lines are longer than the terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence

import click
from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text

from odradek.config.printable import printable

# Wide enough for any name: output to a pipe has one row per line, for grep and awk.
_PIPE_COLUMNS = 10_000
_GAP = 2
# A longer word of a text, such as a value without blanks, is broken.
_WORD_MAX = 40
# The titles of columns with names: a broken one could not be copied, nor found by its text.
_NAMES = frozenset(
    {
        "Address", "Broker", "Brokers", "Client", "Group", "Host", "Member", "Name", "Principal",
        "Profile", "Property", "Setting", "Topic", "User",
    }
)  # fmt: skip


def new_table(*, has_header: bool = True) -> Table:
    """Return an empty table; a column with `no_wrap` is never broken."""
    return Table(
        box=None,
        show_header=has_header,
        pad_edge=False,
        header_style="bold",
        padding=(0, _GAP, 0, 0),
    )


def print_table(console: Console, table: Table) -> None:
    """Print a table without trailing blanks."""
    width, needed = console.width, _fit(console, table)
    console.width = max(width, needed)
    try:
        with console.capture() as captured:
            console.print(table)
    finally:
        console.width = width
    for line in captured.get().splitlines():
        click.echo(line.rstrip(), color=console.is_terminal)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows below titles; a title that ends with ">" aligns its column to the right.

    None is shown as "-". A terminal wraps long texts; a pipe gets one line per row.
    """
    table = new_table()
    for title in columns:
        right, name = title.endswith(">"), title.rstrip(">")
        table.add_column(
            name,
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=right or name in _NAMES,
        )
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    is_terminal = sys.stdout.isatty()
    print_table(Console(highlight=False, width=None if is_terminal else _PIPE_COLUMNS), table)


def _fit(console: Console, table: Table) -> int:
    """Give each column its width; return that of the table.

    The widest texts shrink until the table fits, or cannot.
    """
    widths = [_widest(column, is_whole=True) for column in table.columns]
    least = [
        width if column.no_wrap else min(_WORD_MAX, _widest(column, is_whole=False))
        for width, column in zip(widths, table.columns, strict=True)
    ]
    over = sum(widths) + _GAP * (len(widths) - 1) - console.width
    while over > 0:
        wide = [at for at, width in enumerate(widths) if width > least[at]]
        if not wide:
            break
        at = max(wide, key=lambda one: widths[one])
        widths[at] -= 1
        over -= 1
    for width, column in zip(widths, table.columns, strict=True):
        column.width = width
    return sum(widths) + _GAP * len(widths)


def _widest(column: Column, *, is_whole: bool) -> int:
    """Return the width of the longest cell of a column, or of the longest word in it."""
    lines = (line for cell in _cells(column) for line in _text(cell).plain.splitlines())
    parts = (part for line in lines for part in ([line] if is_whole else line.split()))
    return max((Text(part).cell_len for part in parts), default=1) or 1


def _cells(column: Column) -> Iterator[RenderableType]:
    yield column.header
    yield from column.cells


def _text(cell: RenderableType) -> Text:
    if isinstance(cell, Text):
        return cell
    return Text.from_markup(cell) if isinstance(cell, str) else Text()


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
