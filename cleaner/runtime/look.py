"""A cleaner thread's look at all logs: how dirty each is, and why it would be cleaned.

The event loop notes what it owns, some logs at a time; the thread reads what the files tell.
With thousands of partitions a look takes a while, and the first one waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

from cleaner.rules.policy import Reason
from cleaner.runtime.progress import Candidate, CleanerOffsets, Sight, judge
from storage.log import Log

P = ParamSpec("P")
T = TypeVar("T")

# What the event loop notes of so many takes it less than a millisecond.
_LOGS_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Look:
    """What a look has found."""

    candidates: list[tuple[Candidate, Reason | None]] = field(default_factory=list)
    failures: list[tuple[Sight, Exception]] = field(default_factory=list)

    def unsurveyed(self) -> list[tuple[Candidate, Reason]]:
        """Return the logs of which it is not known when their tombstones and markers expire."""
        unknown = (one for one, reason in self.candidates if reason is None)
        return [(one, Reason.SURVEY) for one in unknown if not one.is_surveyed]

    def unsaved(self) -> dict[CleanerOffsets, Log]:
        """Return whose checkpoint is to be stored once impossible ones are repaired."""
        return {
            one.sight.offsets: one.log
            for one, _ in self.candidates
            if one.dirty.checkpoint_problem is not None
        }


class Viewpoint(Protocol):
    """The event loop's side of a look (Desk). Every method runs on the loop."""

    def all_logs(self) -> Sequence[Log]:
        """Return the logs that there are."""

    def notice(self, logs: Sequence[Log]) -> Sequence[Sight]:
        """Note what there is of those that could be cleaned."""


class Ask(Protocol):
    """Calls a function on the event loop, and returns or raises what that does."""

    def __call__(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...


def look_at_all(viewpoint: Viewpoint, ask: Ask, now_ms: int) -> Look:
    """Look at all logs, from a thread."""
    look = Look()
    logs = ask(viewpoint.all_logs)
    for start in range(0, len(logs), _LOGS_AT_ONCE):
        for sight in ask(viewpoint.notice, logs[start : start + _LOGS_AT_ONCE]):
            try:
                candidate = judge(sight, now_ms)
            except Exception as error:  # The root of a look: one log must not stop the others.
                look.failures.append((sight, error))
                continue
            look.candidates.append((candidate, candidate.reason))
    return look
