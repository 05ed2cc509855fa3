"""A cleaner thread's look at all logs: how dirty each is, and why it would be cleaned.

The event loop notes the facts that it owns, some logs at a time; the thread reads the files. With
thousands of partitions a look takes a while, and the first look waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar

from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.runtime.progress import Candidate, CleanerOffsets, Sight, judge
from odradek.storage.log import Log

P = ParamSpec("P")
T = TypeVar("T")

# The event loop notes the facts of this many logs in less than a millisecond.
_LOGS_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a look."""

    candidates: list[tuple[Candidate, Reason | None]] = field(default_factory=list)
    failures: list[tuple[Sight, Exception]] = field(default_factory=list)

    def unsurveyed(self) -> list[tuple[Candidate, Reason]]:
        """Return the logs whose tombstones and markers expire at an unknown time."""
        unknown = (one for one, reason in self.candidates if reason is None)
        return [(one, Reason.SURVEY) for one in unknown if not one.is_surveyed]

    def unsaved(self) -> dict[CleanerOffsets, Log]:
        """Return the checkpoints to store once impossible offsets are repaired; a log for each."""
        return {
            one.sight.offsets: one.log
            for one, _ in self.candidates
            if one.dirty.checkpoint_problem is not None
        }


class Viewpoint(Protocol):
    """The event loop's side of a look (Desk). Every method runs on the loop."""

    def all_logs(self) -> Sequence[Log]:
        """Return all current logs."""

    def notice(self, logs: Sequence[Log]) -> Sequence[Sight]:
        """Note the facts of those logs that could be cleaned."""


class Ask(Protocol):
    """Calls a function on the event loop; returns its result or raises its error."""

    def __call__(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...


def look_at_all(viewpoint: Viewpoint, ask: Ask, now_ms: int) -> Look:
    """Find out how dirty all logs are; runs in a thread."""
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
