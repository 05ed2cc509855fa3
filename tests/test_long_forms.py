"""The list of long forms names tests that exist."""

from __future__ import annotations

import re
from fnmatch import filter as filter_names
from pathlib import Path

from tests.long_forms import LONG_FORMS, is_long

TESTS = Path(__file__).parent
_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.M)


def test_the_long_forms_of_each_file_exist() -> None:
    for file, patterns in LONG_FORMS.items():
        tests = _TEST.findall((TESTS / file).read_text())
        assert [one for one in patterns if not filter_names(tests, one)] == [], file


def test_other_parameters_than_those_kept_are_long() -> None:
    long = "tests/docs/test_commands.py::test_the_commands_of_a_page_do_what_it_says"
    assert is_long(f"{long}[docs/cli.md]")
    assert not is_long(f"{long}[README.md]")
    assert not is_long("tests/docs/test_commands.py::test_blocks_are_recognized_by_their_kind")


def test_the_first_pattern_that_fits_a_test_counts() -> None:
    page = "tests/page/test_page.py::"
    assert not is_long(f"{page}test_a_clean_run_appears_live")
    assert is_long(f"{page}test_the_keyboard_is_enough")
