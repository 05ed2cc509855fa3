"""The event loop's side of cleaning: chooses logs, swaps segments, keeps the results.

Threads use it only through the loop, so it needs no locks.

1. At most one thread cleans a log, dry runs included.
2. A job that must stop begins no further exchange.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import ParamSpec, Protocol, TypeVar

from odradek.cleaner.errors import VerificationFailed
from odradek.cleaner.passes.stats import CleanResult, report
from odradek.cleaner.rules.job import CleanerSettings, make_job
from odradek.cleaner.rules.policy import Reason, urgency
from odradek.cleaner.runtime.asked import AskedQueue, OnOutcome, Status, seal_active, why_nothing
from odradek.cleaner.runtime.history import History
from odradek.cleaner.runtime.inspection import Inspection, inspect_all
from odradek.cleaner.runtime.progress import (
    Candidate,
    CleanerOffsets,
    NotedLog,
    Progress,
    Running,
    find_candidate,
    note_log,
    range_of,
    repair_checkpoint,
)
from odradek.cleaner.runtime.worker import Rest
from odradek.config.broker import BrokerConfig
from odradek.dataclass import dataclass
from odradek.protocol.errors import ProtocolError
from odradek.storage.errors import DiskFailure, StaleSegments, StorageError
from odradek.storage.exchange import Exchange, still_present
from odradek.storage.log import Log
from odradek.storage.segment import Segment

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# A thread without any rest would keep the event loop busy.
_REST_MIN_MS = 10


class Logs(Protocol):
    """The broker's logs."""

    def __iter__(self) -> Iterator[Log]:
        """Iterate over the logs of all partitions."""

    def directory_of(self, log: Log) -> CleanerOffsets:
        """Return the log directory that keeps a log's checkpoint."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The result of the last inspection of all logs."""

    at_ms: int
    max_dirty_ratio: float
    max_overdue_ms: int
    cleanable_count: int
    overdue_count: int


class Scheduler:
    """Hands out logs to threads and takes back results; owned by the event loop."""

    def __init__(
        self, logs: Logs, config: Callable[[], BrokerConfig], clock_ms: Callable[[], int]
    ) -> None:
        self._logs, self._config, self._clock_ms = logs, config, clock_ms
        self.progress = Progress()
        self.asked = AskedQueue()
        self.runs = History(logs)
        # Called with a log whose cleaning failed because of its files.
        self.on_failed: Callable[[Log, StorageError], None] = lambda log, error: None
        self.last_choice = Choice(clock_ms(), 0.0, 0, 0, 0)
        # The last result of each thread, from which Kafka's metrics are computed.
        self.results_by_thread: dict[int, CleanResult] = {}

    def all_logs(self) -> list[Log]:
        """Return all current logs; the state of others is dropped."""
        present = {(log.topic, log.partition): log for log in self._logs}
        self.progress.forget_absent(present)
        self.runs.forget_absent()
        return list(present.values())

    def note(self, logs: Sequence[Log]) -> list[NotedLog]:
        """Note those logs that could be cleaned."""
        now_ms = self._clock_ms()
        found: list[NotedLog] = []
        for log in logs:
            standing = self.progress.standing(log)
            if not log.config.compact or not standing.may_clean(now_ms):
                continue
            noted = note_log(
                log,
                self._logs.directory_of(log),
                now_ms,
                self.progress.horizons,
                is_retry=standing.quarantined is not None,
            )
            if noted is not None:
                found.append(noted)
        return found

    def take(self, thread: int, inspection: Inspection | None = None) -> Running | Rest | None:
        """Give a thread its next log, or a rest, or its dismissal (None) when it is surplus.

        `inspection` is the thread's latest one of all logs; without it, one is done here.
        """
        config = self._config()
        if thread >= config.log_cleaner_threads:
            return None
        now_ms = self._clock_ms()
        chosen = self._next_asked(now_ms)
        if chosen is None:
            if inspection is None:
                inspection = inspect_all(self, _call, now_ms)
            chosen = self._choose(inspection, now_ms)
        if chosen is None:
            return self._rest(config, now_ms)
        candidate, reason = chosen
        log = candidate.log
        settings = CleanerSettings.of(config)
        if reason is Reason.ASKED and self.asked.begin((log.topic, log.partition)):
            settings = replace(settings, must_verify=True)
        job = make_job(log, range_of(candidate, reason), settings, now_ms, reason)
        running = Running(log, job, self._logs.directory_of(log))
        self.progress.begin(running)
        level = logging.DEBUG if reason is Reason.SURVEY else logging.INFO
        logger.log(level, "began to clean log=%s because=%r", log.name, reason.value)
        return running

    def _rest(self, config: BrokerConfig, now_ms: int) -> Rest:
        """Return how long a thread rests: until a quarantined partition is due, at the latest."""
        rest_ms = config.log_cleaner_backoff_ms
        retry_at_ms = self.progress.next_retry_ms(now_ms)
        if retry_at_ms is not None:
            rest_ms = min(rest_ms, retry_at_ms - now_ms)
        return Rest(max(rest_ms, _REST_MIN_MS) / 1000)

    def ask(self, log: Log, on_outcome: OnOutcome, *, must_verify: bool = False) -> None:
        """Request the cleaning of a log before all others; `on_outcome` gets its outcome."""
        self.asked.add(log, on_outcome, must_verify=must_verify)

    def propose(
        self,
        running: Running,
        old: Sequence[Segment],
        new: Sequence[Segment],
        *,
        is_stored: bool,
    ) -> Exchange:
        """Begin to exchange segments; raises StaleSegments when the log has changed.

        If the catalog has exchanged them, the log follows, though its cleaning was aborted since,
        or retention has deleted some of them.
        """
        if is_stored:
            old = still_present(old, running.log.segments) or old
        elif running.must_stop:
            raise StaleSegments(f"{running.job.name}: its cleaning was aborted")
        return running.log.begin_exchange(old, new, self._clock_ms())

    def refused(self, log: Log, error: DiskFailure) -> None:
        """Note that the cleaner's checkpoint could not be stored; the next one may be."""
        logger.error("failed to store the cleaner's checkpoint log=%s: %s", log.name, error)
        self.on_failed(log, error)

    def succeed(self, thread: int, running: Running, result: CleanResult) -> None:
        """Accept a finished cleaning, whose checkpoint is stored: report it, add it to history."""
        self.progress.end(running)
        if result.reason is Reason.SURVEY and not result.segments_written:
            logger.debug("surveyed log=%s next_horizon_ms=%s", running.job.name,
                         result.next_horizon_ms)  # fmt: skip
            return
        self.results_by_thread[thread] = result
        self.runs.succeeded(running.log, result, self._clock_ms())
        logger.info("%s", report(result, thread), extra={"is_multiline": True})
        if result.invalid_records:
            logger.warning(
                "dropped records without a key log=%s count=%d",
                running.job.name, result.invalid_records,
            )  # fmt: skip
        self.asked.ended(running.key, Status.CLEANED, result.reason.value, result)

    def adopt(self, running: Running, result: CleanResult) -> None:
        """Accept the cleaning of a log that a job outside has done."""
        self.progress.succeed(running, result)
        self.runs.succeeded(running.log, result, self._clock_ms())
        logger.info("%s", report(result, "of a job"), extra={"is_multiline": True})

    def abandon(self, running: Running) -> None:
        """Take back a log whose cleaning was aborted or refused."""
        self.progress.end(running)
        logger.info("aborted cleaning log=%s", running.job.name)
        self.asked.ended(running.key, Status.ABORTED, "the log has changed meanwhile: ask again")

    def fail(self, running: Running, error: BaseException) -> None:
        """Take back a log whose cleaning failed, and put it into quarantine."""
        self.progress.end(running)
        self._quarantine(running.log, error)
        self.asked.ended(running.key, Status.FAILED, f"{type(error).__name__}: {error}")
        if isinstance(error, StorageError) and not isinstance(error, VerificationFailed):
            self.on_failed(running.log, error)

    def _next_asked(self, now_ms: int) -> tuple[Candidate, Reason] | None:
        """Choose the next requested log, quarantined or not; answer requests without work."""
        for log in self.asked.ready(self.progress):
            key = log.topic, log.partition
            offsets = self._logs.directory_of(log)
            try:
                seal_active(log, offsets, now_ms)
                candidate = find_candidate(log, offsets, now_ms, self.progress.horizons)
            except (StorageError, ProtocolError) as error:
                self._quarantine(log, error)
                self.asked.answer(key, Status.FAILED, f"{type(error).__name__}: {error}")
                continue
            dirty = candidate.dirty if candidate else None
            if candidate and candidate.has_work(now_ms):
                return candidate, Reason.ASKED
            self.progress.release(*key)
            self.asked.answer(key, Status.NOTHING, why_nothing(log, dirty))
        return None

    def _choose(self, inspection: Inspection, now_ms: int) -> tuple[Candidate, Reason] | None:
        """Choose the log to clean next: recomputed each time, from all current logs."""
        for noted, error in inspection.failures:
            if noted.is_current:  # if not, it changed during the inspection
                self._quarantine(noted.log, error)
        overdue_ms = [one.dirty.overdue_ms for one, _ in inspection.candidates]
        self._release_clean(inspection, now_ms)
        cleanable = [(one, reason) for one, reason in inspection.candidates if reason is not None]
        self.last_choice = Choice(
            now_ms,
            max((one.dirty.cleanable_ratio for one, _ in inspection.candidates), default=0.0),
            max(overdue_ms, default=0),
            len(cleanable),
            sum(ms > 0 for ms in overdue_ms),
        )
        cleanable.sort(key=lambda one: urgency(one[0].dirty, one[1]), reverse=True)
        cleanable += inspection.unsurveyed()
        chosen = next((one for one in cleanable if self._is_free(one[0], now_ms)), None)
        for one, _ in inspection.candidates:
            repair_checkpoint(one)
            self.progress.note_horizon(one)
        return chosen

    def _release_clean(self, inspection: Inspection, now_ms: int) -> None:
        """Release logs from quarantine whose retry is due and that have nothing to clean."""
        for at, (one, reason) in reversed(list(enumerate(inspection.candidates))):
            has_work = one.has_work(now_ms) or not one.is_surveyed
            if reason is Reason.RETRY and not has_work and one.noted.is_current:
                del inspection.candidates[at]
                self.progress.release(one.log.topic, one.log.partition)
                logger.info("found nothing to clean at the retry log=%s", one.log.name)

    def _is_free(self, candidate: Candidate, now_ms: int) -> bool:
        """Return whether a log is unchanged since the inspection and no other thread cleans it."""
        log, noted = candidate.log, candidate.noted
        return self.progress.may_clean(log, now_ms) and noted.is_current

    def _quarantine(self, log: Log, error: BaseException) -> None:
        entry = self.progress.fail(log, error, self._clock_ms())
        is_bug = not isinstance(error, StorageError) or isinstance(error, VerificationFailed)
        logger.error(
            "failed to clean log=%s file=%s position=%s offset=%s failures=%d retry_in_ms=%d: %s",
            log.name, entry.file, entry.position, entry.offset, entry.failures,
            entry.retry_at_ms - self._clock_ms(), entry.exception,
            exc_info=error if is_bug else None,
        )  # fmt: skip
        self.runs.failed(log, entry, self._clock_ms())


def _call(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)
