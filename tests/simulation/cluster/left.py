"""The parts of a history that are left out when it is shrunk (tests/simulation/shrink.py)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Left:
    """Nothing, unless it is said: the draws of what stays are the same."""

    # By their numbers, in the order in which they begin.
    troubles: frozenset[int] = frozenset()
    # By the names of their clients.
    loads: frozenset[str] = frozenset()
    # Of the time of the troubles, the share that is played.
    share: float = 1.0


NOTHING = Left()
