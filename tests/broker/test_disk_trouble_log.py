"""The log of a disk that keeps refusing: the first refusal, then one line in a while."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.topics.disks import Disks
from odradek.storage.errors import DiskFailure
from odradek.storage.files import FileSystem
from tests.simulation.faultyfs import DISK_FULL, FaultyFileSystem

LOOK_MS = 500  # as often as the broker looks
GAP_MS = 30_000


class Looked:
    """Disks with two directories, looked at as the broker looks, in a time of its own."""

    def __init__(self, root: Path) -> None:
        self.disk, self.now_ms, self.full = FaultyFileSystem(), 0, set[str]()
        self.disk.refuse = lambda kind, path: (
            DISK_FULL if kind == "write" and self.full & set(path.parts) else None
        )
        self.paths: Mapping[str, Path] = {name: root / name for name in ("one", "two")}
        for path in self.paths.values():
            path.mkdir(exist_ok=True)
        parts = cast(Any, SimpleNamespace(offline_directories={}, offline=list))
        self.disks = Disks(
            cast(FileSystem, self.disk), parts, parts, cast(Any, None), lambda: self.now_ms
        )

    def refuse(self, name: str) -> None:
        """Have a request refused."""
        path = self.paths[name]
        self.disks.note_directory(path, DiskFailure(path / "0.log", DISK_FULL))

    def look(self) -> None:
        """Let the broker look, half a second later."""
        self.now_ms += LOOK_MS
        asyncio.run(self.disks.check())


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the kind of each line since the last call, and how many it tells of."""
    found = []
    for message in caplog.messages:
        match = re.match(r"disk trouble( continues| is over)? \S+/\w+(?: count=(\d+))?", message)
        assert match is not None, message
        found.append(f"{(match[1] or 'begins').strip()} {match[2] or 1}")
    caplog.clear()
    return found


def test_a_disk_that_goes_on_refusing_is_logged_at_once_and_then_twice_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    looked = Looked(tmp_path)
    looked.full = {"one"}
    looked.refuse("one")
    assert logged(caplog) == ["begins 1"]
    for _ in range(200):  # 100 s in which clients try again and again
        looked.refuse("one")
        looked.refuse("one")
        looked.look()
    assert logged(caplog) == ["continues 121", "continues 120", "continues 120"]
    assert looked.disks.failures == {looked.paths["one"]: 401}
    (problem,) = looked.disks.problems()
    assert "refused 401 operations" in problem
    for _ in range(240):  # 120 s in which only the broker's own probe is refused
        looked.look()
    assert len(logged(caplog)) == 4
    assert looked.disks.problems() == [problem]
    assert looked.disks.failures == {looked.paths["one"]: 401}


def test_a_disk_that_has_recovered_and_fails_again_is_logged_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    looked = Looked(tmp_path)
    for _ in range(3):
        looked.refuse("one")
        looked.refuse("one")
        looked.look()
        looked.refuse("two")
        assert logged(caplog) == ["begins 1", "begins 1"]
        for _ in range(GAP_MS // LOOK_MS):
            looked.look()
        assert logged(caplog) == ["is over 2", "is over 1"]
        assert looked.disks.problems() == []


@given(steps=st.lists(st.sampled_from(["refuse", "look", "full", "free"]), max_size=400))
def test_whatever_comes_lines_are_few_and_no_refusal_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    looked = Looked(tmp_path_factory.getbasetemp())
    with pytest.MonkeyPatch.context() as patch:
        lines: list[tuple[int, str]] = []
        for level in ("error", "info"):
            patch.setattr(
                f"odradek.broker.topics.disks.logger.{level}",
                lambda text, *values: lines.append((looked.now_ms, text % values)),
            )
        for step in steps:
            if step == "refuse":
                looked.refuse("one")
            elif step == "look":
                looked.look()
            else:
                looked.full = {"one"} if step == "full" else set()
    troubles = [(at, line) for at, line in lines if " is over " not in line]
    for (before, _), (after, line) in pairwise(troubles):
        assert " continues " not in line or after - before >= GAP_MS
    begins = [line for _, line in troubles if " continues " not in line]
    overs = [line for _, line in lines if " is over " in line]
    assert len(begins) - len(overs) == len(looked.disks.problems())
    refused = looked.disks.failures.get(looked.paths["one"], 0)
    assert bool(begins) == bool(refused)
