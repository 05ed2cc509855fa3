"""Requests to clean certain logs: they are served first, in the order of asking.

A requested cleaning does not depend on how dirty the log is. It respects min.compaction.lag.ms
and open transactions like any other cleaning. The active segment is sealed first, if that makes
any of it cleanable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from enum import Enum

from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.facts import largest_timestamp, note_state, read_facts
from odradek.cleaner.rules.policy import Bound, DirtyRange, dirty_range
from odradek.cleaner.runtime.progress import CleanerOffsets, Progress
from odradek.dataclass import dataclass
from odradek.storage.checkpoints import TopicPartition
from odradek.storage.log import Log


class Status(Enum):
    """The end of a requested cleaning."""

    CLEANED = "it was cleaned"
    NOTHING = "there was nothing to clean"
    FAILED = "its cleaning failed"
    ABORTED = "its cleaning was aborted"
    REFUSED = "it was not tried"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a request, and its reason."""

    topic: str
    partition: int
    status: Status
    because: str
    result: CleanResult | None = None


OnOutcome = Callable[[Outcome], None]


@dataclass(slots=True)
class _Asked:
    log: Log
    on_outcome: list[OnOutcome] = field(default_factory=list)
    must_verify: bool = False


class AskedQueue:
    """The requests by log, waiting or in progress; owned by the scheduler."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, _Asked] = {}
        self._running: dict[TopicPartition, _Asked] = {}

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._waiting

    @property
    def waiting(self) -> tuple[TopicPartition, ...]:
        """The partitions that wait for a thread, the next one first."""
        return tuple(self._waiting)

    def add(self, log: Log, on_outcome: OnOutcome, *, must_verify: bool = False) -> None:
        """Add a request to clean a log, and to prove the output; `on_outcome` gets the outcome."""
        entry = self._waiting.setdefault((log.topic, log.partition), _Asked(log))
        entry.on_outcome.append(on_outcome)
        entry.must_verify |= must_verify

    def ready(self, progress: Progress) -> Iterable[Log]:
        """Return the logs that may be cleaned now, in order: all but those in progress.

        Requests that can never be served are answered, and left out.
        """
        found = []
        for key, entry in list(self._waiting.items()):
            standing = progress.standing(entry.log)
            if entry.log.is_closed:
                self.answer(key, Status.ABORTED, "the partition was deleted or its disk failed")
            elif not entry.log.config.compact:
                self.answer(key, Status.REFUSED, "cleanup.policy of its topic lacks compact")
            elif standing.pause_count:
                self.answer(key, Status.REFUSED, "its cleaning is paused: ask again later")
            elif standing.leased_to is not None:
                self.answer(key, Status.REFUSED, standing.lease_sentence)
            elif not standing.is_running:
                found.append(entry.log)
        return found

    def begin(self, key: TopicPartition) -> bool:
        """Note that a thread has taken a log; return whether its output must be proved."""
        self._running[key] = entry = self._waiting.pop(key)
        return entry.must_verify

    def answer(self, key: TopicPartition, status: Status, because: str) -> None:
        """Answer the requests for a log that is not cleaned, with the reason."""
        _answer(self._waiting.pop(key), Outcome(*key, status, because))

    def ended(
        self, key: TopicPartition, status: Status, because: str, result: CleanResult | None = None
    ) -> None:
        """Answer the requests that were made before a cleaning began, if any, with its end."""
        if key in self._running:
            _answer(self._running.pop(key), Outcome(*key, status, because, result))

    def refuse_all(self, because: str) -> None:
        """Refuse all requests that wait for a thread, as none will come."""
        for key in list(self._waiting):
            self.answer(key, Status.REFUSED, because)

    def close(self) -> None:
        """Answer all requests, as the broker stops."""
        for entries in (self._running, self._waiting):
            for key, entry in entries.items():
                _answer(entry, Outcome(*key, Status.ABORTED, "the broker stops"))
            entries.clear()


def _answer(entry: _Asked, outcome: Outcome) -> None:
    for on_outcome in entry.on_outcome:
        on_outcome(outcome)


def seal_active(log: Log, offsets: CleanerOffsets, now_ms: int) -> bool:
    """Seal a log's active segment if that makes it cleanable; return whether it was sealed.

    Raises StorageError.
    """
    if not could_seal(log, now_ms):
        return False
    checkpoint = offsets.cleaner_offsets.get((log.topic, log.partition))
    facts = read_facts(note_state(log))
    if dirty_range(facts, checkpoint, now_ms).bound is not Bound.ACTIVE_SEGMENT:
        return False
    log.roll(now_ms, "asked to clean")
    return True


def could_seal(log: Log, now_ms: int) -> bool:
    """Return whether a log's active segment could be cleaned if it was sealed."""
    active, lag_ms = log.active, log.config.min_compaction_lag_ms
    if active.size_bytes == 0 or log.last_stable_offset < log.log_end_offset:
        return False
    return lag_ms <= 0 or largest_timestamp(active) <= now_ms - lag_ms


def why_nothing(log: Log, dirty: DirtyRange | None) -> str:
    """Return the reason why a requested cleaning has nothing to do."""
    if dirty is not None and dirty.bound is Bound.MIN_COMPACTION_LAG:
        return (
            f"the dirty part, from offset {dirty.first_dirty_offset:,} on, is held back by "
            f"{dirty.bound.value}"
        )
    if log.last_stable_offset < log.log_end_offset:
        return f"a transaction is open since offset {log.last_stable_offset:,}"
    if log.active.size_bytes > 0:
        return "the dirty part is too young for min.compaction.lag.ms"
    return f"it is clean up to its end, offset {log.log_end_offset:,}"
