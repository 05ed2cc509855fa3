"""Mistakes, made on purpose, that a simulation has to find within some seeds."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.cluster.run import Survey

Mistake = Callable[[pytest.MonkeyPatch], None]
"""Its docstring says in a sentence what is wrong."""


def name_of(value: Any) -> str:
    """Return the name of a mistake; the id of a parameter."""
    return getattr(value, "__name__", "")


def find_mistake(
    run: Callable[[int, Path], Survey],
    seeds: Iterable[int],
    folder: Path,
    mistake: Mistake,
    problem: str,
    first: int,
) -> int:
    """Return the first seed whose history has a problem that begins like a pattern.

    `first` is tried before the others: a seed that has found it. It need not do so any more.
    """
    for seed in dict.fromkeys([first, *seeds]):
        path = folder / str(seed)
        path.mkdir()
        problems = run(seed, path).problems
        shutil.rmtree(path)
        if any(re.match(problem, one) for one in problems):
            print(f"found by seed={seed}")
            return seed
    raise AssertionError(f"no seed has found it: {mistake.__doc__}")
