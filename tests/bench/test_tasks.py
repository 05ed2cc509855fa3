"""The ten tasks of docs/tasks.md, in a browser and in a terminal."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="needs the dev extra")

from bench import tasks
from bench.browser import CHROMIUM, NO_CHROMIUM
from bench.processes import ROOT

PAGE = ROOT / "docs" / "tasks.md"


def pictures(task: tasks.Task) -> list[str]:
    return [f"task-{task.name}-page.png", f"task-{task.name}-terminal.svg"]


def test_the_page_has_each_task_with_its_command_and_its_pictures() -> None:
    text = PAGE.read_text()
    assert len(tasks.TASKS) == 10 == text.count("\n## ")
    for task in tasks.TASKS:
        assert f"`{task.command}`" in text
        for name in pictures(task):
            assert f"(images/{name})" in text
            assert (tasks.FOLDER / name).exists()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)
def test_each_task_is_done_twice(tmp_path: Path) -> None:
    pytest.importorskip("cel_expr_python", reason="needs the extra console")
    assert tasks.main(["--folder", str(tmp_path)]) == 0
    for task in tasks.TASKS:
        page, terminal = (tmp_path / name for name in pictures(task))
        assert page.read_bytes().startswith(b"\x89PNG")
        shown = html.unescape(terminal.read_text()).replace("\xa0", " ")
        assert f"$ {task.command[:40]}" in shown
        assert "url(http" not in shown  # a font at another host
