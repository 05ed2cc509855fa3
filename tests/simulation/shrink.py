"""Finds a smaller history that still has a problem: `python -m tests.simulation.shrink SEED`.

It leaves out troubles and loads, and plays a shorter part of the troubles, as long as a problem
of the same kind stays. What stays has its former draws.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from tests.simulation.cluster.left import NOTHING, Left
from tests.simulation.cluster.run import Survey
from tests.simulation.cluster.run import run as run_cluster
from tests.simulation.shared.conversions import run as run_converting
from tests.simulation.shared.run import run as run_shared

T = TypeVar("T", int, str)

_SHARE_MIN = 0.1


class Run(Protocol):
    """Plays a history of a seed."""

    def __call__(self, seed: int, path: Path, left: Left = ...) -> Survey:
        """Return what was found, with a catalog in a directory."""


class Shrinking:
    """Shrinks the history of a seed."""

    def __init__(self, run: Run, seed: int) -> None:
        self._run, self._seed = run, seed
        self.tried = 0
        self.survey = self._play(NOTHING)
        # The kinds of problems that the whole history has.
        self.kinds = frozenset(map(_kind, self.survey.problems))

    def smallest(self) -> Left:
        """Return the most that can be left out. Raises ValueError if there is no problem."""
        if not self.kinds:
            raise ValueError(f"seed={self._seed} has no problem")
        loads, troubles = self.survey.loads, range(len(self.survey.troubles))
        left = NOTHING
        while left.share > _SHARE_MIN and self._fails(shorter := _halve(left)):
            left, troubles = shorter, range(len(self.survey.troubles))
        left = self._without(left, troubles, _leave_troubles)
        return self._without(left, loads, _leave_loads)

    def _without(
        self, left: Left, parts: Sequence[T], leave: Callable[[Left, Sequence[T]], Left]
    ) -> Left:
        """Leave out all of some parts, else halves of them, down to single ones."""
        size = len(parts)
        while size:
            for chunk in _chunks(parts, size):
                if self._fails(tried := leave(left, chunk)):
                    left = tried
                    parts = [one for one in parts if one not in chunk]
            size //= 2
        return left

    def _fails(self, left: Left) -> bool:
        self.survey = survey = self._play(left)
        return any(_kind(one) in self.kinds for one in survey.problems)

    def _play(self, left: Left) -> Survey:
        self.tried += 1
        with tempfile.TemporaryDirectory() as folder:
            return self._run(self._seed, Path(folder), left)


def describe(found: Survey, left: Left) -> str:
    """Return what a shrunk history has, a line each."""
    troubles = [
        f"{number} {name}"
        for number, name in enumerate(found.troubles)
        if number not in left.troubles
    ]
    loads = [one for one in found.loads if one not in left.loads]
    return "\n".join(
        [
            f"troubles: {', '.join(troubles) or 'none'}",
            f"loads: {', '.join(loads) or 'none'}",
            f"share of the time: {left.share}",
            repr(left),
            *found.problems,
        ]
    )


def _leave_troubles(left: Left, chunk: Sequence[int]) -> Left:
    return replace(left, troubles=left.troubles | set(chunk))


def _leave_loads(left: Left, chunk: Sequence[str]) -> Left:
    return replace(left, loads=left.loads | set(chunk))


def _halve(left: Left) -> Left:
    return replace(left, share=left.share / 2)


def _chunks(parts: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for begin in range(0, len(parts), size):
        yield parts[begin : begin + size]


def _kind(problem: str) -> str:
    return problem.partition(":")[0]


def main() -> None:
    """Shrink the history of a seed, and print what is left of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    kinds = parser.add_mutually_exclusive_group()
    for name, run_one, meaning in (
        ("--shared", run_shared, "a history of shared topics"),
        ("--conversions", run_converting, "a history in which topics change their storage"),
    ):
        kinds.add_argument(name, dest="run", action="store_const", const=run_one, help=meaning)
    parser.set_defaults(run=run_cluster)
    given = parser.parse_args()
    run: Run = given.run
    shrinking = Shrinking(run, given.seed)
    left = shrinking.smallest()
    with tempfile.TemporaryDirectory() as folder:
        print(describe(run(given.seed, Path(folder), left), left))


if __name__ == "__main__":
    main()
