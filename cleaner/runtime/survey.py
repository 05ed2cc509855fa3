"""The state of all logs, for operators and metrics: noted on the loop, computed in a thread.

The loop takes only references, a few microseconds a log. Look-ups in segments may read the disk,
and arithmetic over thousands of logs takes a while: the loop must not wait for either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from odradek.cleaner.rules.due import announced_ms
from odradek.cleaner.rules.facts import ActiveSegment, LogFacts, NotedState, read_facts
from odradek.cleaner.rules.policy import DirtyRange, Reason, dirty_range, urgency
from odradek.cleaner.rules.quarantine import Standing
from odradek.cleaner.rules.why import Threads
from odradek.dataclass import dataclass
from odradek.protocol.errors import ProtocolError
from odradek.storage.errors import StorageError


@dataclass(frozen=True, slots=True)
class Noted:
    """A compacted log and the state of its cleaning, at one moment."""

    log: NotedState
    directory: Path  # the log directory that holds it
    checkpoint: int | None
    standing: Standing
    is_asked: bool
    horizon_ms: int | None
    active: ActiveSegment
    threads: Threads


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of a log, as a thread has found it."""

    noted: Noted
    facts: LogFacts
    dirty: DirtyRange
    reason: Reason | None
    due_ms: int | None

    @property
    def topic(self) -> str:
        """The log's topic."""
        return self.noted.log.topic

    @property
    def partition(self) -> int:
        """The log's partition."""
        return self.noted.log.partition

    @property
    def uncleanable_bytes(self) -> int:
        """The bytes after the range that can be cleaned."""
        start = max(self.dirty.first_dirty_offset, self.dirty.first_uncleanable_offset)
        return sum(s.size_bytes for s in self.facts.segments if s.base_offset >= start)

    @property
    def dirty_bytes(self) -> int:
        """All bytes that have not been cleaned, whether or not they can be yet."""
        return self.dirty.cleanable_bytes + self.uncleanable_bytes

    def is_cleanable(self, now_ms: int) -> bool:
        """Return whether a free thread may take the log now."""
        return self.noted.standing.may_clean(now_ms) and (
            self.noted.is_asked or self.reason is not None
        )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A log that could not be read, and the error."""

    noted: Noted
    cause: str


def assess(noted: Noted, now_ms: int) -> Finding:
    """Find out how dirty a log is; runs in a thread. Raises StorageError and ProtocolError."""
    facts = read_facts(noted.log)
    dirty = dirty_range(facts, noted.checkpoint, now_ms, noted.horizon_ms)
    due = None
    if noted.threads.can_clean:
        due = announced_ms(
            facts,
            noted.checkpoint,
            now_ms,
            noted.standing,
            noted.active,
            horizon_ms=noted.horizon_ms,
        )
    return Finding(noted, facts, dirty, noted.standing.reason(facts, dirty), due)


def survey(logs: Iterable[Noted], now_ms: int) -> tuple[list[Finding], list[Unreadable]]:
    """Inspection at logs independently: a log that cannot be read does not affect the others."""
    findings: list[Finding] = []
    unreadable: list[Unreadable] = []
    for noted in logs:
        try:
            findings.append(assess(noted, now_ms))
        except (StorageError, ProtocolError) as error:
            unreadable.append(Unreadable(noted, f"{type(error).__name__}: {error}"))
    return findings, unreadable


def queue(findings: Iterable[Finding], now_ms: int) -> Sequence[Finding]:
    """Return the logs that a free thread may take now, in the order of taking."""
    cleanable = [one for one in findings if one.is_cleanable(now_ms)]
    by_urgency = sorted(cleanable, key=lambda one: urgency(one.dirty, one.reason), reverse=True)
    return sorted(by_urgency, key=lambda one: not one.noted.is_asked)
