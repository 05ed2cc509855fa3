"""Explores all states of a model, breadth first: the trace to a violation is a shortest one.

A state is an immutable value that can be hashed. An action has a name, and yields the steps that
it can take from a state: each is a line for people, and the next state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)

Step = tuple[str, S]
Actions = Mapping[str, Callable[[S], Iterable[Step[S]]]]


class TooManyStates(Exception):
    """The bounds allow more states than the caller wants to wait for."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise, and the shortest way to it: a line for each step."""

    problem: str
    trace: Sequence[str]

    def __str__(self) -> str:
        lines = [f"{at:3}  {line}" for at, line in enumerate(self.trace, 1)]
        return "\n".join([f"{self.problem}, after {len(self.trace)} steps:", *lines])


@dataclass(slots=True)
class Exploration(Generic[S]):
    """The states that were reached, the steps that each action took, and the first violation."""

    violation: Violation | None = None
    states: int = 0
    taken: Counter[str] = field(default_factory=Counter)
    depth: int = 0


def explore(
    initial: S,
    actions: Actions[S],
    problem_of: Callable[[S], str | None],
    is_good: Callable[[S], bool],
    *,
    states_max: int = 10_000_000,
) -> Exploration[S]:
    """Visit all reachable states, up to the first violation.

    `problem_of` returns the broken promise of a state. It is a violation, too, if a good state
    cannot be reached from some state: no action is left there, or all of them lead nowhere.
    Raises TooManyStates.
    """
    found = Exploration[S]()
    numbers: dict[S, int] = {initial: 0}
    # By the number of a state: the state before it, the step to it, and all states before it.
    parents, lines, before = [-1], [""], [[-1]]
    good: list[int] = []
    level, at = [initial], 0
    while level:
        following: list[S] = []
        for state in level:
            problem = problem_of(state)
            if problem is not None:
                found.states = len(numbers)
                found.violation = Violation(problem, _trace(at, parents, lines))
                return found
            if is_good(state):
                good.append(at)
            for name, action in actions.items():
                for line, successor in action(state):
                    found.taken[name] += 1
                    new = len(parents)
                    number = numbers.setdefault(successor, new)  # its hash costs the most
                    if number != new:
                        before[number].append(at)
                        continue
                    parents.append(at)
                    lines.append(line)
                    before.append([at])
                    following.append(successor)
            at += 1
        if len(numbers) > states_max:
            raise TooManyStates(f"there are more than {states_max} states")
        level = following
        found.depth += bool(following)
    found.states = len(numbers)
    stuck = next(_without_way(len(numbers), before, good), None)
    if stuck is not None:
        trace = _trace(stuck, parents, lines)
        found.violation = Violation("stuck: no good end can be reached", trace)
    return found


def _without_way(
    count: int, before: Sequence[Sequence[int]], good: Iterable[int]
) -> Iterator[int]:
    """Yield the states from which no good state can be reached, those with short traces first."""
    has_way = bytearray(count)
    waiting = list(good)
    for one in waiting:
        has_way[one] = 1
    while waiting:
        for earlier in before[waiting.pop()]:
            if earlier >= 0 and not has_way[earlier]:
                has_way[earlier] = 1
                waiting.append(earlier)
    return (number for number in range(count) if not has_way[number])


def _trace(number: int, parents: Sequence[int], lines: Sequence[str]) -> list[str]:
    trace = []
    while number > 0:
        trace.append(lines[number])
        number = parents[number]
    return trace[::-1]
