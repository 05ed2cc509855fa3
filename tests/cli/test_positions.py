"""Positions as the command line has them."""

from __future__ import annotations

import click
import pytest

from odradek.cli.positions import Kind, Position, PositionType


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Position(Kind.BEGINNING)),
        ("end", Position(Kind.END)),
        ("42", Position(Kind.OFFSET, 42)),
        ("-10", Position(Kind.LAST, 10)),
        ("@1700000000123", Position(Kind.TIMESTAMP, 1_700_000_000_123)),
        ("@2023-11-14T22:13:20.123Z", Position(Kind.TIMESTAMP, 1_700_000_000_123)),
        ("@2023-11-14T23:13:20+01:00", Position(Kind.TIMESTAMP, 1_700_000_000_000)),
        ("@2023-11-14", Position(Kind.TIMESTAMP, 1_699_920_000_000)),
    ],
)
def test_a_position_is_read(text: str, position: Position) -> None:
    assert PositionType().convert(text, None, None) == position


@pytest.mark.parametrize("text", ["", "start", "4.2", "--5", "@", "@soon", "2023-11-14", "9" * 19])
def test_a_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is none of: beginning, end, an offset"):
        PositionType().convert(text, None, None)
