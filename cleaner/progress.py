"""Where each log's cleaning stands: in progress, paused, in quarantine, clean up to an offset.

All of it is the event loop's. How far logs are clean is kept in their directory's
cleaner-offset-checkpoint; the rest is forgotten when the broker stops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from cleaner.job import CleaningJob
from cleaner.policy import CheckpointProblem, DirtyRange, dirty_range
from cleaner.view import LogView, view_log
from config.topic import TopicConfig
from storage.checkpoints import TopicPartition
from storage.errors import CorruptFile, DiskFailure
from storage.log import Log

logger = logging.getLogger(__name__)

RETRY_MIN_MS = 15_000  # Kafka's log.cleaner.backoff.ms
RETRY_MAX_MS = 3_600_000


class CleanerOffsets(Protocol):
    """The cleaner's checkpoint of a log directory (storage.directory.LogDirectory)."""

    cleaner_offsets: dict[TopicPartition, int]

    def write_cleaner_offsets(self) -> None:
        """Replace the file by what the dictionary says."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A log that could be cleaned, and how dirty it is."""

    log: Log
    view: LogView
    dirty: DirtyRange


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A partition whose cleaning failed, and when it is tried again."""

    topic: str
    partition: int
    exception: str
    file: str | None
    position: int | None  # in the file
    since_ms: int
    failures: int
    retry_at_ms: int


@dataclass(slots=True)
class _Quarantine:
    public: Quarantined
    config: TopicConfig


class Running:
    """A job in progress. The loop sets the flag, the thread looks at it."""

    __slots__ = ("is_aborted", "job", "log", "offsets")

    def __init__(self, log: Log, job: CleaningJob, offsets: CleanerOffsets) -> None:
        self.log, self.job, self.offsets = log, job, offsets
        self.is_aborted = False

    @property
    def must_stop(self) -> bool:
        """Whether its outputs are of no use any more."""
        return self.is_aborted or self.log.is_closed or not self.log.config.compact


class Progress:
    """The state of all cleanings; owned by the event loop."""

    def __init__(self) -> None:
        self._running: dict[TopicPartition, Running] = {}
        self._pauses: dict[TopicPartition, int] = {}
        self._quarantine: dict[TopicPartition, _Quarantine] = {}

    @property
    def running(self) -> Iterable[Running]:
        """The jobs in progress."""
        return self._running.values()

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The partitions whose last cleaning failed."""
        return tuple(entry.public for entry in self._quarantine.values())

    def may_clean(self, log: Log, now_ms: int) -> bool:
        """Tell whether a log's cleaning may begin: not while it runs, is paused, or failed.

        A new configuration of the topic ends its quarantine.
        """
        key = log.topic, log.partition
        if key in self._running or key in self._pauses:
            return False
        entry = self._quarantine.get(key)
        return entry is None or log.config is not entry.config or now_ms >= (
            entry.public.retry_at_ms
        )

    def begin(self, running: Running) -> None:
        """Note that a job is in progress."""
        self._running[running.job.topic, running.job.partition] = running

    def end(self, running: Running) -> None:
        """Note that a job is over, however it went."""
        key = running.job.topic, running.job.partition
        if self._running.get(key) is running:
            del self._running[key]

    def succeed(self, running: Running, end_offset: int) -> None:
        """Note that a log is clean up to an offset, durably."""
        key = running.job.topic, running.job.partition
        self._quarantine.pop(key, None)
        if not running.must_stop:
            running.offsets.cleaner_offsets[key] = end_offset
            running.offsets.write_cleaner_offsets()

    def fail(self, log: Log, error: BaseException, now_ms: int) -> Quarantined:
        """Put a partition into quarantine, for longer each time in a row; return the entry."""
        key = log.topic, log.partition
        before = self._quarantine.get(key)
        failures = before.public.failures + 1 if before else 1
        wait_ms = min(RETRY_MIN_MS << min(failures - 1, 16), RETRY_MAX_MS)
        file = str(error.path) if isinstance(error, CorruptFile | DiskFailure) else None
        entry = Quarantined(
            topic=log.topic,
            partition=log.partition,
            exception=f"{type(error).__name__}: {error}",
            file=file,
            position=error.position if isinstance(error, CorruptFile) else None,
            since_ms=before.public.since_ms if before else now_ms,
            failures=failures,
            retry_at_ms=now_ms + wait_ms,
        )
        self._quarantine[key] = _Quarantine(entry, log.config)
        return entry

    def abort(self, topic: str, partition: int) -> None:
        """Make a cleaning in progress stop, if there is one; it may begin anew later."""
        running = self._running.get((topic, partition))
        if running is not None:
            running.is_aborted = True

    def pause(self, topic: str, partition: int) -> None:
        """Abort a partition's cleaning, and begin none until as many calls of resume()."""
        self.abort(topic, partition)
        self._pauses[topic, partition] = self._pauses.get((topic, partition), 0) + 1

    def resume(self, topic: str, partition: int) -> None:
        """Undo one call of pause()."""
        left = self._pauses.get((topic, partition), 0) - 1
        if left > 0:
            self._pauses[topic, partition] = left
        else:
            self._pauses.pop((topic, partition), None)

    def forget_absent(self, present: Iterable[TopicPartition]) -> None:
        """Drop what is known of partitions that are no more."""
        alive = set(present)
        for state in (self._quarantine, self._pauses):
            for key in [key for key in state if key not in alive]:
                del state[key]


def find_candidate(log: Log, offsets: CleanerOffsets, now_ms: int) -> Candidate | None:
    """Look how dirty a log is; None when nothing but its active segment is dirty.

    Repairs a checkpoint that cannot be.
    """
    key = log.topic, log.partition
    checkpoint = offsets.cleaner_offsets.get(key)
    if len(log.segments) == 1 or checkpoint == log.active.base_offset:
        return None  # the common case, and cheap: nothing to look at in the segments
    view = view_log(log)
    dirty = dirty_range(view, checkpoint, now_ms)
    problem = dirty.checkpoint_problem
    if problem is not None:
        # Retention moves the log start past the checkpoint in the course of things.
        if problem != CheckpointProblem.BELOW_LOG_START or not log.config.delete:
            logger.warning(
                "reset first dirty offset log=%s checkpoint=%d: it %s; now %d",
                log.name, checkpoint, problem.value, dirty.first_dirty_offset,
            )  # fmt: skip
        offsets.cleaner_offsets[key] = dirty.first_dirty_offset
        offsets.write_cleaner_offsets()
    return Candidate(log, view, dirty)
