"""What the documentation tells a reader to type is typed here, page by page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.processes import ROOT
from tests.docs.blocks import Block, blocks
from tests.docs.running import commands, run_page, words

_OUTSIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*_OUTSIDE, *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND_TIMEOUT_S, SPARK_TIMEOUT_S = 240.0, 300.0
SPARK = ROOT / "docs" / "spark.md"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def marks(page: Path) -> list[pytest.MarkDecorator]:
    """Return what a run of a page needs."""
    if page == SPARK:
        return [pytest.mark.interop, pytest.mark.spark, pytest.mark.timeout(1800)]
    return [pytest.mark.slow, pytest.mark.timeout(600)]


RUN = [pytest.param(page, id=name(page), marks=marks(page)) for page in PAGES if commands(page)]


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    timeout_s = SPARK_TIMEOUT_S if page == SPARK else COMMAND_TIMEOUT_S
    absent = set()
    for ran in run_page(page, tmp_path / "run", timeout_s=timeout_s):
        where = f"{name(page)}:{ran.command.line}: {ran.command.text}\n{ran.printed}"
        if ran.absent is not None:
            absent.add(ran.absent)
            continue
        assert ran.status == 0, where
        assert not ran.missing(), where
    if absent:
        pytest.skip(f"{', '.join(sorted(absent))}: not here, and left out")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_each_block_of_commands_is_run_or_says_why_not(page: Path) -> None:
    told = [block for block in blocks(page) if block.is_of_commands]
    silent = [
        f"{name(page)}:{block.line}: {block.lines[0]}"
        for block in told
        if not block.is_run and block.reason is None
    ]
    assert not silent, "make it a fence of `console`, or say above it why: <!-- not run: … -->"
    for block in told:
        if block.reason is not None:
            print(f"{name(page)}:{block.line}: not run: {block.reason}")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_parts_of_an_item_of_a_list_are_indented_by_four(page: Path) -> None:
    astray, fence, before = [], "", ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        ticks = re.match(r"\s*(`{3,}|)", line)
        assert ticks is not None
        is_nested = re.match(r" {1,3}(```|- |\* |\d+\. )", line)
        is_part = re.match(r" {1,3}\S", line) and not before.strip()
        if not fence and (is_nested or is_part):
            astray.append(f"{name(page)}:{number}: {line}")
        if ticks[1] and (not fence or line.strip() == fence):
            fence = "" if fence else ticks[1]
        before = line
    assert not astray, "a forge takes it for a part of the item, MkDocs does not"


def test_every_fence_that_is_run_has_commands() -> None:
    empty = [
        f"{name(page)}:{block.line}"
        for page in PAGES
        for block in blocks(page)
        if block.is_run and not list(block.commands())
    ]
    assert not empty


def test_most_of_what_is_shown_is_run() -> None:
    told = [block for page in PAGES for block in blocks(page) if block.is_of_commands]
    assert sum(block.is_run for block in told) > len(told) / 2


def test_blocks_are_recognized_by_their_kind(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Text.\n\n    odradek topics list\n\n"
        "<!-- not run: needs Docker -->\n\n    docker run odradek\n\n"
        "1. A list:\n\n   ```console\n   $ odradek get \\\n       prices p1\n   11\n   ```\n\n"
        "2. More:\n\n    <!-- not run: needs root -->\n\n"
        "    ```console\n    $ sudo ls\n    ```\n\n"
        "```properties\nlog.dirs=data\n```\n\n    not a command\n"
    )
    first, second, third, fourth, settings, last = blocks(page)
    assert (first.is_of_commands, first.reason) == (True, None)
    assert (second.is_of_commands, second.reason) == (True, "needs Docker")
    assert third.is_run
    (command,) = third.commands()
    assert (command.line, command.text) == (12, "odradek get \\\n    prices p1")
    assert command.shown == ["11"]
    assert (fourth.is_run, fourth.reason) == (False, "needs root")
    assert not settings.is_of_commands and not last.is_of_commands


def test_output_before_a_command_is_no_block_to_run() -> None:
    with pytest.raises(ValueError, match="line 8 is no command"):
        list(Block(7, "console", ["Topic  Partitions"], None).commands())


def test_figures_and_what_is_left_out_are_not_compared() -> None:
    assert words("prices  2 partitions, id QsyYsBZ1Q … in 2.9 MB") == {
        "prices",
        "partitions,",
        "id",
    }
    # A mark behind a unit changes nothing: "89 ms:" is "1.1 s:" where others use the machine.
    assert words("cleaned in 89 ms: 9.1 MB; (12 kB), a map") == {"cleaned", "a", "map"}
