"""The page of options says what the declarations say."""

from __future__ import annotations

from pathlib import Path

from odradek.config.effective import BROKER_OPTIONS, declared_options
from odradek.config.reference import reference
from odradek.config.without_effect import replaced, without_effect

_DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_fresh() -> None:
    assert (_DOCS / "configs.md").read_text() == reference(), "run: make docs"


def test_the_list_of_options_without_effect_is_fresh() -> None:
    page = (_DOCS / "compatibility.md").read_text()
    assert page == replaced(page), "run: make docs"


def test_every_option_but_kafkas_internal_ones_is_on_one_of_the_pages() -> None:
    page, inert = reference(), without_effect()
    for option in (*declared_options(), *BROKER_OPTIONS):
        is_named = f"`{option.name}`" in page, f"`{option.name}`" in inert
        if option.internal and not option.name.startswith("odradek."):
            assert is_named == (False, False), option.name
        else:
            assert sum(is_named) == 1, option.name


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    width = None
    for line in reference().splitlines():
        if not line.startswith("|"):
            width = None
            continue
        width = width or line.count("|")
        assert line.count("|") == width, line
