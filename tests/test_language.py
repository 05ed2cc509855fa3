"""Texts are in plain English: without the phrases that `python -m tests.language` knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.language import ROOT, TEST_NAME, bare_clauses, files, findings
from tests.packages import PACKAGES

FOLDERS = (*PACKAGES, "bench", "docs")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
# The dated figures stay as they were written.
HISTORY = ROOT / "bench" / "RESULTS.md"
# These numbers only go down.
BARE_CLAUSES_MAX = 104
TEST_NAMES_MAX = 0


def paths() -> list[Path]:
    return [path for path in files([*FOLDERS, *PAGES]) if path != HISTORY]


@pytest.mark.parametrize("folder", [*FOLDERS, *PAGES])
def test_no_stiff_phrase_is_left(folder: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{one.line}": one
        for path in files([folder])
        if path != HISTORY
        for one in findings(path)
    }
    assert not found


def test_few_clauses_stand_for_nouns() -> None:
    found = [(path, one) for path in paths() for one in bare_clauses(path)]
    assert len(found) == BARE_CLAUSES_MAX, "lower the number with each one that goes"


def test_names_of_tests_begin_with_a_subject() -> None:
    found = [
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in TEST_NAME.findall(path.read_text())
    ]
    assert len(found) == TEST_NAMES_MAX, "lower the number with each one that goes"


def test_stiff_phrases_are_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""What waits for the disk is told anew."""\nx = 1  # by who wants it\n')
    advice = {one.advice for one in findings(module)}
    assert advice == {
        "begin with the subject: a noun",
        "report, return, log, send, say",
        "again",
        "name the person or the part",
    }
