"""The event loop's side of cleaning: chooses logs, swaps segments, keeps the results.

Threads reach it through the loop only, so that it needs no locks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from cleaner.job import CleanerSettings, make_job
from cleaner.policy import Reason, reason_to_clean, urgency
from cleaner.progress import Candidate, CleanerOffsets, Progress, Running, find_candidate
from cleaner.stats import CleanResult, report
from cleaner.worker import Rest
from config.broker import BrokerConfig
from protocol.errors import ProtocolError
from storage.checkpoints import TopicPartition
from storage.errors import StaleSegments, StorageError
from storage.log import Log
from storage.segment import Segment

logger = logging.getLogger(__name__)

HISTORY_PER_PARTITION = 10


class Logs(Protocol):
    """The broker's logs."""

    def __iter__(self) -> Iterator[Log]:
        """Iterate over the logs of all partitions."""

    def directory_of(self, log: Log) -> CleanerOffsets:
        """Return the log directory that keeps a log's checkpoint."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the last look at all logs has found."""

    at_ms: int
    max_dirty_ratio: float
    max_overdue_ms: int
    cleanable_count: int
    overdue_count: int


class Desk:
    """Hands out logs to threads and takes back results; owned by the event loop."""

    def __init__(
        self, logs: Logs, config: Callable[[], BrokerConfig], clock_ms: Callable[[], int]
    ) -> None:
        self._logs, self._config, self._clock_ms = logs, config, clock_ms
        self.progress = Progress()
        # Called with a log whose cleaning failed because of its files.
        self.on_failed: Callable[[Log, StorageError], None] = lambda log, error: None
        self.last_choice = Choice(clock_ms(), 0.0, 0, 0, 0)
        # The last result of each thread, by which Kafka's metrics go.
        self.results_by_thread: dict[int, CleanResult] = {}
        self._history: dict[TopicPartition, deque[CleanResult]] = {}

    def take(self, thread: int) -> Running | Rest | None:
        """Give a thread its next log, or rest, or its notice (None) when it is one too many."""
        config = self._config()
        if thread >= config.log_cleaner_threads:
            return None
        now_ms = self._clock_ms()
        chosen = self._choose(now_ms)
        if chosen is None:
            return Rest(config.log_cleaner_backoff_ms / 1000)
        candidate, reason = chosen
        log = candidate.log
        job = make_job(log, candidate.dirty, CleanerSettings.of(config), now_ms, reason)
        running = Running(log, job, self._logs.directory_of(log))
        self.progress.begin(running)
        return running

    def propose(
        self, running: Running, old: Sequence[Segment], new: Sequence[Segment]
    ) -> None:
        """Exchange segments; raises StaleSegments when the log has changed."""
        if running.must_stop:
            raise StaleSegments(f"{running.job.name}: its cleaning was aborted")
        running.log.replace_segments(old, new, self._clock_ms())

    def succeed(self, thread: int, running: Running, result: CleanResult) -> None:
        """Take a finished cleaning: its checkpoint, its report, its place in the history."""
        self.progress.end(running)
        self.progress.succeed(running, result.end_offset)
        self.results_by_thread[thread] = result
        key = result.topic, result.partition
        self._history.setdefault(key, deque(maxlen=HISTORY_PER_PARTITION)).append(result)
        logger.info("%s", report(result, thread))
        if result.invalid_records:
            logger.warning(
                "dropped records without a key log=%s count=%d",
                running.job.name, result.invalid_records,
            )  # fmt: skip

    def abandon(self, running: Running) -> None:
        """Take back a log whose cleaning was aborted or refused."""
        self.progress.end(running)
        logger.info("aborted cleaning log=%s", running.job.name)

    def fail(self, running: Running, error: Exception) -> None:
        """Take back a log whose cleaning failed, and put it into quarantine."""
        self.progress.end(running)
        self._quarantine(running.log, error)
        if isinstance(error, StorageError):
            self.on_failed(running.log, error)

    def history(self, topic: str, partition: int) -> tuple[CleanResult, ...]:
        """Return a partition's last cleanings, the oldest first."""
        return tuple(self._history.get((topic, partition), ()))

    def last_results(self) -> tuple[CleanResult, ...]:
        """Return the last cleaning of each partition that had one."""
        return tuple(results[-1] for results in self._history.values())

    def _choose(self, now_ms: int) -> tuple[Candidate, Reason] | None:
        """Choose the log to clean next: recomputed each time, from all logs there are."""
        candidates: list[Candidate] = []
        keys = []
        for log in self._logs:
            keys.append((log.topic, log.partition))
            if log.config.compact and self.progress.may_clean(log, now_ms):
                candidate = self._look_at(log, now_ms)
                if candidate is not None:
                    candidates.append(candidate)
        self.progress.forget_absent(keys)
        for key in self._history.keys() - set(keys):
            del self._history[key]
        reasons = [(one, reason_to_clean(one.view, one.dirty)) for one in candidates]
        cleanable = [(one, reason) for one, reason in reasons if reason is not None]
        overdue_ms = [one.dirty.overdue_ms for one in candidates]
        self.last_choice = Choice(
            now_ms,
            max((one.dirty.cleanable_ratio for one in candidates), default=0.0),
            max(overdue_ms, default=0),
            len(cleanable),
            sum(ms > 0 for ms in overdue_ms),
        )
        return max(cleanable, key=lambda one: urgency(one[0].dirty), default=None)

    def _look_at(self, log: Log, now_ms: int) -> Candidate | None:
        try:
            return find_candidate(log, self._logs.directory_of(log), now_ms)
        except (StorageError, ProtocolError) as error:
            self._quarantine(log, error)
            return None

    def _quarantine(self, log: Log, error: Exception) -> None:
        entry = self.progress.fail(log, error, self._clock_ms())
        logger.error(
            "failed to clean log=%s file=%s position=%s failures=%d retry_in_ms=%d: %s",
            log.name, entry.file, entry.position, entry.failures,
            entry.retry_at_ms - self._clock_ms(), entry.exception,
            exc_info=error,
        )  # fmt: skip
