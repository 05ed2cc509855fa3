"""Processes that take long to start, each for as long as one file after another uses it.

A Java process with nothing to do still takes some percent of a core, and one that ends with the
test run keeps the run waiting.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

import pytest

T = TypeVar("T")


class Shared(Generic[T]):
    """A process that runs from its first use to the end of the files that have a sign in them."""

    def __init__(self, sign: str, run: Callable[[Path], AbstractContextManager[T]]) -> None:
        """Run it, when it is used, in the context that `run` makes for a folder.

        The sign is a regular expression: by the text of a file it is known early whether its
        tests share the process.
        """
        self.sign = sign
        self._run = run
        self._open: tuple[ExitStack, T] | None = None

    def start(self, request: pytest.FixtureRequest) -> T:
        """Return what runs, for the test of a request; start it unless it does."""
        file, sign = request.path, self.sign
        assert is_in(sign, file), f"{file} shares a process, and needs {sign} in it"
        if self._open is None:
            folder = request.getfixturevalue("tmp_path_factory").mktemp("shared")
            stack = ExitStack()
            self._open = stack, stack.enter_context(self._run(folder))
        return self._open[1]

    def end(self) -> None:
        """End it if it runs."""
        if self._open is not None:
            (stack, _), self._open = self._open, None
            stack.close()


@cache
def is_in(sign: str, file: Path) -> bool:
    """Return whether a regular expression matches in a file."""
    return re.search(sign, file.read_text()) is not None
