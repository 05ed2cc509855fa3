"""Descriptors that few files share, while threads open, read and forget files."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import pytest

from odradek.storage.real_files import RealFile, RealFileSystem

# What a file does by its descriptor, by the system call that it does it with.
BY_CALL: dict[str, Callable[[RealFile], object]] = {
    "fstat": lambda file: file.size(),
    "pwritev": lambda file: file.append(0, (b"mine",)),
    "pread": lambda file: file.read(0, 4),
    "preadv": lambda file: file.read_cached(0, 4),
    "ftruncate": lambda file: file.truncate(4),
    "fdatasync": lambda file: file.sync(),
}


@contextmanager
def opening(fs: RealFileSystem, call: str, others: Path) -> Iterator[list[int]]:
    """Have files opened between the choice of a descriptor and its use, as threads would.

    Yields the inodes that the descriptors belonged to by then.
    """
    function = getattr(os, call)
    used: list[int] = []
    kept: list[RealFile] = []

    def interrupted(fd: int, *arguments: Any) -> Any:
        kept.extend(fs.open(others / f"other-{at}", write=True) for at in range(3))
        used.append(os.stat(fd).st_ino)
        return function(fd, *arguments)

    with mock.patch.object(os, call, interrupted):
        yield used


def run_all(work: Callable[[int], None]) -> None:
    """Run it in four threads, each with its number, to their ends."""
    threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


@pytest.mark.parametrize("call", BY_CALL)
def test_a_descriptor_that_is_in_use_is_neither_closed_nor_another_files(
    call: str, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_bytes(b"mine")
    fs = RealFileSystem(open_files_max=2)
    file = fs.open(tmp_path / "mine", write=True)
    for _ in range(3):
        file.is_used = False  # the hand has come by
        with opening(fs, call, tmp_path) as used:
            BY_CALL[call](file)
        assert set(used) == {(tmp_path / "mine").stat().st_ino}
    assert (tmp_path / "mine").read_bytes() == b"mine"
    for at in range(3):
        assert (tmp_path / f"other-{at}").read_bytes() == b""


def test_threads_that_share_few_descriptors_read_and_write_their_own_files(
    tmp_path: Path,
) -> None:
    fs = RealFileSystem(open_files_max=2)
    failures: list[BaseException] = []

    def work(own: int) -> None:
        try:
            files = [fs.open(tmp_path / f"{own}-{at}", write=True) for at in range(4)]
            for turn in range(200):
                for at, file in enumerate(files):
                    text = b"%d %d %d" % (own, at, turn)
                    file.truncate(0)
                    file.append(0, (text,))
                    assert (file.read(0, 99), file.size()) == (text, len(text))
                    assert bytes(file.read_cached(0, 99) or b"") == text
        except BaseException as error:  # reported to the test's own thread
            failures.append(error)

    run_all(work)
    assert not failures


class Forgetful:
    """Forgets files at the n-th step of what storage does, as the collector may at any."""

    def __init__(self, files: list[RealFile], step: int) -> None:
        self._files, self.steps_left = files, step

    def __call__(self, frame: FrameType, event: str, _: object) -> Forgetful | None:
        if not frame.f_code.co_filename.endswith("storage/real_files.py"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.steps_left -= 1
            if self.steps_left == 0:
                self._files.clear()
        return self


@pytest.mark.parametrize("kept_count", [0, 1, 4])
def test_files_may_be_forgotten_at_any_step_of_an_opening(kept_count: int, tmp_path: Path) -> None:
    step, tracing = 0, sys.gettrace()
    while True:
        step += 1
        fs = RealFileSystem(open_files_max=4)
        files = [fs.open(tmp_path / str(at), write=True) for at in range(4)]
        kept = files[:kept_count]
        forgetful = Forgetful(files, step)
        sys.settrace(forgetful)
        try:
            opened = [fs.open(tmp_path / f"other-{at}", write=True) for at in range(3)]
            fs.close()
        finally:
            sys.settrace(tracing)
        assert [one.size() for one in [*kept, *opened]] == [0] * (kept_count + 3)
        if forgetful.steps_left > 0:  # it was done before the step came
            break
    assert step > 100


def test_forgotten_files_take_no_place_of_others(tmp_path: Path) -> None:
    fs = RealFileSystem(open_files_max=4)
    kept = [fs.open(tmp_path / f"kept-{at}", write=True) for at in range(3)]
    for one in kept:
        one.is_used = False
    for at in range(100):
        fs.open(tmp_path / f"forgotten-{at}", write=True)
    assert all(one.descriptor is not None for one in kept)
