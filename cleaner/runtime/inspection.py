"""A cleaner thread's inspection of all logs: how dirty each is, and why it would be cleaned.

The event loop notes the state that it owns, some logs at a time; the thread reads the files. With
thousands of partitions an inspection takes a while, and the first one waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import ParamSpec, Protocol, TypeVar

from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.runtime.progress import Candidate, CleanerOffsets, NotedLog, assess
from odradek.dataclass import dataclass
from odradek.storage.log import Log

P = ParamSpec("P")
T = TypeVar("T")

# The event loop notes this many logs in less than a millisecond.
_LOGS_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Inspection:
    """How dirty all logs are."""

    candidates: list[tuple[Candidate, Reason | None]] = field(default_factory=list)
    failures: list[tuple[NotedLog, Exception]] = field(default_factory=list)

    def unsurveyed(self) -> list[tuple[Candidate, Reason]]:
        """Return the logs whose tombstones and markers expire at an unknown time."""
        unknown = (one for one, reason in self.candidates if reason is None)
        return [(one, Reason.SURVEY) for one in unknown if not one.is_surveyed]

    def unsaved(self) -> dict[CleanerOffsets, Log]:
        """Return the checkpoints to store once impossible offsets are repaired; a log for each."""
        return {
            one.noted.offsets: one.log
            for one, _ in self.candidates
            if one.dirty.checkpoint_problem is not None
        }


class LogSource(Protocol):
    """The logs to inspect (of the Scheduler). Every method runs on the event loop."""

    def all_logs(self) -> Sequence[Log]:
        """Return all current logs."""

    def note(self, logs: Sequence[Log]) -> Sequence[NotedLog]:
        """Note those logs that could be cleaned."""


class Ask(Protocol):
    """Calls a function on the event loop; returns its result or raises its error."""

    def __call__(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...


def inspect_all(source: LogSource, ask: Ask, now_ms: int) -> Inspection:
    """Find out how dirty all logs are; runs in a thread."""
    inspection = Inspection()
    logs = ask(source.all_logs)
    for start in range(0, len(logs), _LOGS_AT_ONCE):
        for noted in ask(source.note, logs[start : start + _LOGS_AT_ONCE]):
            try:
                candidate = assess(noted, now_ms)
            except Exception as error:  # A root: one log must not stop the others.
                inspection.failures.append((noted, error))
                continue
            inspection.candidates.append((candidate, candidate.reason))
    return inspection
