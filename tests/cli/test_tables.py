"""Tables keep the names in them whole, however narrow the terminal is."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from odradek.cli.tables import new_table, print_rows, print_table

TITLES = (
    "Topic", "Group", "Setting", "User", "Profile", "Brokers", "Member", "Client", "Host",
    "Address", "Principal", "Name",
)  # fmt: skip
names = st.text("abcXYZ019._-", min_size=1, max_size=249)
settings = st.sampled_from(["min.cleanable.dirty.ratio", "cleanup.policy", "retention.ms"])


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int) -> list[str]:
    """Return the lines of a table on a terminal of a width."""
    output = _Terminal()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.setenv("COLUMNS", str(width))
        patch.setenv("TERM", "xterm")
        print_rows(columns, rows)
    return click.unstyle(output.getvalue()).splitlines()


@given(
    st.sampled_from(TITLES),
    st.lists(st.tuples(names, st.integers(0, 10**12), names, settings), min_size=1, max_size=5),
    st.integers(20, 120),
)
def test_names_and_numbers_are_whole_at_each_width(
    title: str, drawn: Sequence[tuple[str, int, str, str]], width: int
) -> None:
    rows = [(name, number, f"{other}: {name}", own) for name, number, other, own in drawn]
    lines = shown([title, "Offset>", "Value", "Setting"], rows, width)
    words = [line.split() for line in lines]
    for name, number, _, own in rows:
        assert any(line[0] == name and f"{number:,}" in line and line[-1] == own for line in words)
    first = [line for line in lines[1:] if not line.startswith(" ")]
    assert len(first) == len(rows)


@given(names, st.integers(20, 120))
def test_a_line_is_longer_than_the_terminal_only_for_names(name: str, width: int) -> None:
    text = "one of several words " * 9
    lines = shown(["Topic", "Text"], [(name, text)], width)
    assert max(map(cell_len, lines)) <= max(width, len(name) + len("  several "))
    assert " ".join(lines[1:]).split() == [name, *text.split()]


def test_a_table_that_fits_is_as_wide_as_its_cells() -> None:
    assert shown(["Topic", "Count>"], [("prices", 1)], 40) == ["Topic   Count", "prices      1"]


def test_a_pipe_has_one_line_for_a_row_whatever_its_length() -> None:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        print_rows(["Topic", "Text"], [("a" * 249, "some words " * 50)])
    assert len(output.getvalue().splitlines()) == 2


@given(names, st.integers(20, 120))
def test_columns_of_other_tables_are_whole_where_they_say_so(name: str, width: int) -> None:
    table = new_table()
    table.add_column("Log", no_wrap=True)
    table.add_column("When")
    table.add_row(Text(f"{name}-0"), "now, since there is much that is dirty in it")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        print_table(Console(width=width), table)
    assert f"{name}-0 " in output.getvalue()
