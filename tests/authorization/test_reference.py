"""The page about who may do what is that of the table."""

from __future__ import annotations

from pathlib import Path

from tests.authorization.reference import document


def test_page_is_fresh() -> None:
    page = Path(__file__).parent.parent.parent / "docs" / "authorization.md"
    assert page.read_text() == document(), "run `make docs`"
