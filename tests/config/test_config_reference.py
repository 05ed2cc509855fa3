"""The page of options says what the declarations say."""

from __future__ import annotations

from pathlib import Path

from config.effective import BROKER_OPTIONS, declared_options
from config.reference import reference

_PAGE = Path(__file__).parents[2] / "docs" / "configs.md"


def test_the_page_is_fresh() -> None:
    assert _PAGE.read_text() == reference(), "run: python -m config.reference > docs/configs.md"


def test_the_page_names_every_option_but_internal_ones() -> None:
    page = reference()
    for option in (*declared_options(), *BROKER_OPTIONS):
        assert (f"`{option.name}`" in page) != option.internal, option.name


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    width = None
    for line in reference().splitlines():
        if not line.startswith("|"):
            width = None
            continue
        width = width or line.count("|")
        assert line.count("|") == width, line
