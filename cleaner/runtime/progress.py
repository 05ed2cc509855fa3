"""The state of each log's cleaning: in progress, paused, in quarantine, clean up to an offset.

The event loop owns all of it. The offsets up to which logs are clean are kept in their
directory's cleaner-offset-checkpoint; the rest is forgotten when the broker stops.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

from odradek.cleaner.passes.stats import CleanResult, Counters
from odradek.cleaner.passes.summary import read_summary
from odradek.cleaner.rules.facts import LogFacts, NotedState, note_state, read_facts
from odradek.cleaner.rules.job import CleaningJob
from odradek.cleaner.rules.policy import (
    CheckpointProblem,
    DirtyRange,
    Reason,
    clean_range,
    dirty_range,
    reason_to_clean,
)
from odradek.cleaner.rules.quarantine import Quarantine, Quarantined, Standing
from odradek.dataclass import dataclass
from odradek.storage.checkpoints import Checkpoints, TopicPartition
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

# When the first tombstone or marker of each partition's clean part expires, None for never; a
# partition without an entry has not been surveyed.
Horizons: TypeAlias = dict[TopicPartition, int | None]


class CleanerOffsets(Protocol):
    """The cleaner's checkpoint of a log directory (storage.directory.LogDirectory)."""

    cleaner_offsets: dict[TopicPartition, int]

    def take_cleaner_offsets(self) -> Checkpoints:
        """Return the present contents of the file; store() follows."""

    def store(self, taken: Checkpoints) -> None:
        """Write it, unless a later one was written; in any thread. Raises DiskFailure."""


@dataclass(frozen=True, slots=True)
class NotedLog:
    """The values that the event loop notes of a log that could be dirty."""

    log: Log
    state: NotedState
    offsets: CleanerOffsets
    checkpoint: int | None
    horizon_ms: int | None  # when the first tombstone or marker of its clean part expires
    is_surveyed: bool  # whether the horizon is known
    is_retry: bool = False  # its last cleaning failed, and it is time to try again

    @property
    def is_current(self) -> bool:
        """Whether the log is unchanged, except for appended batches."""
        log, then = self.log, self.state
        return (
            not log.is_closed
            and log.config is then.config
            and log.log_start_offset == then.log_start_offset
            and log.segments[: len(then.segments)] == then.segments
            and self.offsets.cleaner_offsets.get((log.topic, log.partition)) == self.checkpoint
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A log that could be cleaned, and how dirty it is."""

    noted: NotedLog
    facts: LogFacts
    dirty: DirtyRange
    horizon_ms: int | None
    is_surveyed: bool

    @property
    def log(self) -> Log:
        """The log."""
        return self.noted.log

    @property
    def reason(self) -> Reason | None:
        """The reason to clean the log now, None when there is none."""
        return Reason.RETRY if self.noted.is_retry else reason_to_clean(self.facts, self.dirty)

    def has_work(self, now_ms: int) -> bool:
        """Return whether a run would find work, though it may not be worthwhile yet."""
        has_expired = self.horizon_ms is not None and self.horizon_ms <= now_ms
        return self.dirty.cleanable_bytes > 0 or has_expired


@dataclass(frozen=True, slots=True)
class IoBytes:
    """Bytes that cleanings read, in both passes, and wrote."""

    read: int
    written: int

    def __add__(self, other: IoBytes) -> IoBytes:
        return IoBytes(self.read + other.read, self.written + other.written)


class Running:
    """A job in progress. The loop sets `is_aborted`, the thread checks it."""

    __slots__ = ("counters", "is_aborted", "is_dry_run", "job", "log", "offsets")

    def __init__(
        self, log: Log, job: CleaningJob, offsets: CleanerOffsets, *, is_dry_run: bool = False
    ) -> None:
        self.log, self.job, self.offsets = log, job, offsets
        # The thread counts; others may read the present counts.
        self.counters = Counters()
        self.is_aborted = False
        self.is_dry_run = is_dry_run

    @property
    def io(self) -> IoBytes:
        """The bytes that it has read and written so far."""
        counters = self.counters
        return IoBytes(counters.indexed_bytes + counters.read_bytes, counters.written_bytes)

    @property
    def key(self) -> TopicPartition:
        """The partition that is cleaned."""
        return self.job.topic, self.job.partition

    @property
    def must_stop(self) -> bool:
        """Whether its output is no longer of use."""
        return self.is_aborted or self.log.is_closed or not self.log.config.compact


class Progress:
    """The state of all cleanings; owned by the event loop."""

    def __init__(self) -> None:
        self._running: dict[TopicPartition, Running] = {}
        self._pauses: dict[TopicPartition, int] = {}
        self._leases: dict[TopicPartition, str] = {}
        self._quarantine = Quarantine()
        self.horizons: Horizons = {}
        # Called each time a job has ended.
        self.on_end: Callable[[], None] = lambda: None
        self._ended_io = self._reported_io = IoBytes(0, 0)

    @property
    def running(self) -> Iterable[Running]:
        """The jobs in progress."""
        return self._running.values()

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The partitions whose last cleaning failed."""
        return self._quarantine.all()

    def may_clean(self, log: Log, now_ms: int) -> bool:
        """Return whether a cleaning may begin: none runs, is paused, or waits to be retried."""
        return self.standing(log).may_clean(now_ms)

    def standing(self, log: Log) -> Standing:
        """Return the state that prevents a log's cleaning, or asks for it."""
        key = log.topic, log.partition
        return Standing(
            key in self._running,
            self._pauses.get(key, 0),
            self._quarantine.of(log),
            self._leases.get(key),
        )

    def retry_all(self, now_ms: int) -> None:
        """End the wait of all partitions whose cleaning failed."""
        self._quarantine.retry_all(now_ms)

    def next_retry_ms(self, now_ms: int) -> int | None:
        """Return when the wait of the next quarantined partition ends, None when none does."""
        times = (one.retry_at_ms for one in self._quarantine.all())
        return min((at_ms for at_ms in times if at_ms > now_ms), default=None)

    def is_running(self, topic: str, partition: int) -> bool:
        """Return whether a job of a partition is in progress."""
        return (topic, partition) in self._running

    def is_quarantined(self, topic: str, partition: int) -> bool:
        """Return whether a partition's last cleaning failed."""
        return (topic, partition) in self._quarantine

    def release(self, topic: str, partition: int) -> None:
        """Take a partition out of quarantine: an inspection found nothing to clean."""
        self._quarantine.release((topic, partition))

    def begin(self, running: Running) -> None:
        """Note that a job is in progress."""
        self._running[running.job.topic, running.job.partition] = running

    def end(self, running: Running) -> None:
        """Note that a job is over, however it went."""
        key = running.job.topic, running.job.partition
        if self._running.get(key) is running:
            del self._running[key]
            self._ended_io += running.io
            self.on_end()

    def io_bytes(self) -> IoBytes:
        """Return the bytes that all cleanings have read and written since the start.

        The result never decreases, though a run that has to begin again with a larger map also
        counts from 0 again.
        """
        counted = sum((one.io for one in self._running.values()), self._ended_io)
        reported = self._reported_io
        self._reported_io = IoBytes(
            max(counted.read, reported.read), max(counted.written, reported.written)
        )
        return self._reported_io

    def succeed(self, running: Running, result: CleanResult) -> None:
        """Note the offset up to which a log is clean, and the first horizon in that part."""
        key = running.job.topic, running.job.partition
        self._quarantine.release(key)
        if not running.must_stop:
            running.offsets.cleaner_offsets[key] = result.end_offset
            if not result.is_alone:
                self.horizons[key] = result.next_horizon_ms

    def note_horizon(self, candidate: Candidate) -> None:
        """Note the horizon of tombstones and markers that an inspection has found."""
        if candidate.is_surveyed and candidate.noted.is_current:
            log = candidate.log
            self.horizons.setdefault((log.topic, log.partition), candidate.horizon_ms)

    def fail(self, log: Log, error: BaseException, now_ms: int) -> Quarantined:
        """Quarantine a partition, for longer after each failure in a row; return the entry."""
        return self._quarantine.add(log, error, now_ms)

    def abort(self, topic: str, partition: int) -> None:
        """Stop a cleaning in progress, if there is one; it may begin again later."""
        running = self._running.get((topic, partition))
        if running is not None:
            running.is_aborted = True

    def pause(self, topic: str, partition: int) -> None:
        """Abort a partition's cleaning, and begin none until each pause() has had a resume()."""
        self.abort(topic, partition)
        self._pauses[topic, partition] = self._pauses.get((topic, partition), 0) + 1

    def resume(self, topic: str, partition: int) -> None:
        """Undo one call of pause()."""
        left = self._pauses.get((topic, partition), 0) - 1
        if left > 0:
            self._pauses[topic, partition] = left
        else:
            self._pauses.pop((topic, partition), None)

    def lease(self, topic: str, partition: int, job: str) -> None:
        """Abort a partition's cleaning, and leave it to a job outside until `end_lease`."""
        self.abort(topic, partition)
        self._leases[topic, partition] = job

    def end_lease(self, topic: str, partition: int) -> None:
        """Clean a partition here again."""
        self._leases.pop((topic, partition), None)

    def forget_absent(self, present: Mapping[TopicPartition, Log]) -> None:
        """Drop the state of partitions that no longer exist or are no longer compacted."""
        for state in (self._pauses, self._leases, self.horizons):
            for key in state.keys() - present.keys():
                del state[key]
        self._quarantine.forget_absent(present)


def find_candidate(
    log: Log, offsets: CleanerOffsets, now_ms: int, horizons: Horizons | None = None
) -> Candidate | None:
    """Find out how dirty a log is; None when nothing could be cleaned.

    Repairs an impossible checkpoint.
    """
    noted = note_log(log, offsets, now_ms, horizons)
    if noted is None:
        return None
    candidate = assess(noted, now_ms)
    repair_checkpoint(candidate)
    return candidate


def note_log(
    log: Log,
    offsets: CleanerOffsets,
    now_ms: int,
    horizons: Horizons | None,
    *,
    is_retry: bool = False,
) -> NotedLog | None:
    """Note a log for its assessment; None when nothing could be cleaned.

    Without `horizons` expiry does not count. `is_retry` means that its last cleaning failed: then
    the log is noted in any case.
    """
    key = log.topic, log.partition
    checkpoint = offsets.cleaner_offsets.get(key)
    has_clean = checkpoint is not None and checkpoint > log.segments[0].base_offset
    is_surveyed = horizons is None or not has_clean or key in horizons
    horizon_ms = horizons.get(key) if horizons is not None and has_clean else None
    has_dirty = len(log.segments) > 1 and checkpoint != log.active.base_offset
    has_expired = horizon_ms is not None and now_ms >= horizon_ms
    if is_surveyed and not (has_dirty or has_expired or is_retry):
        return None  # the common case, and cheap
    return NotedLog(log, note_state(log), offsets, checkpoint, horizon_ms, is_surveyed, is_retry)


def assess(noted: NotedLog, now_ms: int) -> Candidate:
    """Find out how dirty a log is; reads the log's files, and may run in a thread."""
    facts = read_facts(noted.state)
    horizon_ms, is_surveyed = noted.horizon_ms, noted.is_surveyed
    if not is_surveyed:
        horizon_ms, is_surveyed = _survey(noted)
    dirty = dirty_range(facts, noted.checkpoint, now_ms, horizon_ms)
    return Candidate(noted, facts, dirty, horizon_ms, is_surveyed)


def _survey(noted: NotedLog) -> tuple[int | None, bool]:
    """Return the first horizon in the summaries of clean segments, and whether all have one."""
    segments = noted.state.segments
    horizons: list[int] = []
    for segment, following in itertools.pairwise(segments):
        if following.base_offset > (noted.checkpoint or 0):
            break
        summary = read_summary(segment)
        if summary is None:
            return None, False
        if summary.next_horizon_ms is not None:
            horizons.append(summary.next_horizon_ms)
    return min(horizons, default=None), True


def repair_checkpoint(candidate: Candidate) -> None:
    """Correct an impossible checkpoint; runs on the loop. The caller stores it."""
    noted, dirty = candidate.noted, candidate.dirty
    problem = dirty.checkpoint_problem
    if problem is None or not noted.is_current:
        return
    log = noted.log
    # Retention normally moves the log start past the checkpoint: no warning then.
    if problem != CheckpointProblem.BELOW_LOG_START or not log.config.delete:
        logger.warning(
            "reset first dirty offset log=%s checkpoint=%d: it %s; now %d",
            log.name, noted.checkpoint, problem.value, dirty.first_dirty_offset,
        )  # fmt: skip
    noted.offsets.cleaner_offsets[log.topic, log.partition] = dirty.first_dirty_offset


def range_of(candidate: Candidate, reason: Reason) -> DirtyRange:
    """Return the range to clean for a reason: the cleanable part, or only the clean part again."""
    is_clean = reason is Reason.RETRY and candidate.dirty.cleanable_bytes == 0
    if is_clean or reason in (Reason.EXPIRED, Reason.SURVEY):
        return clean_range(candidate.facts, candidate.dirty)
    return candidate.dirty
