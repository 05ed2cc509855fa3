"""Judges whether what a cluster takes levels off in a long run.

The first third of a run is for warming up. In the last third a level may not be higher than it was
in the second, but for a tenth and some noise. A level is the value that nine of ten samples do not
exceed, so that a single peak is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.pairs import quantile

_GROWTH_MAX = 1.1
_LEVEL = 0.9
# Of each third.
_SAMPLES_MIN = 3

Point = tuple[float, float]
"""Seconds since the begin of the run, and a value."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """Something that a cluster takes; it may grow by `noise` without a leak."""

    title: str
    noise: float


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of the second and the last third of a run."""

    second: float
    last: float

    def grows(self, noise: float) -> bool:
        """Return whether the last third needs more than the second."""
        return self.last > self.second * _GROWTH_MAX + noise


def levels(points: Sequence[Point], end_s: float) -> Levels | None:
    """Return the levels in a run of some seconds; None if there are too few samples."""
    thirds: list[list[float]] = [[], [], []]
    for second, value in points:
        thirds[min(int(3 * second / end_s), 2)].append(value)
    if min(map(len, thirds[1:])) < _SAMPLES_MIN:
        return None
    return Levels(*(quantile(third, _LEVEL) for third in thirds[1:]))


def growing(
    samples: Mapping[Quantity, Mapping[str, Sequence[Point]]], end_s: float
) -> list[str]:
    """Return a sentence for each quantity, of each owner, that does not level off."""
    found = []
    for quantity, owners in samples.items():
        for owner, points in owners.items():
            of_them = levels(points, end_s)
            if of_them is None:
                found.append(f"{quantity.title} of {owner}: too few samples to judge")
            elif of_them.grows(quantity.noise):
                found.append(
                    f"{quantity.title} of {owner} grows: {of_them.second:,.0f} in the second"
                    f" third of the run, {of_them.last:,.0f} in the last"
                )
    return found
