"""Partitions whose cleaning failed, and when each is tried again.

The entry that is shown also decides: a partition is left alone until `retry_at_ms`, and tried
then, however dirty it is. Each failure in a row doubles the wait, up to an hour, but those of a
bucket.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from odradek.cleaner.rules.facts import LogFacts
from odradek.cleaner.rules.policy import DirtyRange, Reason, reason_to_clean
from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.storage.checkpoints import TopicPartition
from odradek.storage.errors import BucketFailure, CorruptFile, DiskFailure
from odradek.storage.log import Log

RETRY_MIN_MS = 15_000  # Kafka's log.cleaner.backoff.ms
RETRY_MAX_MS = 3_600_000
_DOUBLINGS_MAX = 16


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A partition whose cleaning failed, and when it is tried again."""

    topic: str
    partition: int
    exception: str
    file: str | None
    position: int | None  # in the file
    offset: int | None  # the first offset that cannot be read
    since_ms: int
    failures: int
    retry_at_ms: int

    @property
    def sentence(self) -> str:
        """The problem, for an operator."""
        name = f"{self.topic}-{self.partition}"
        where = "" if self.offset is None else f" from offset {self.offset} on"
        return f"partition {name} cannot be cleaned{where}: {self.exception}"


@dataclass(frozen=True, slots=True)
class Standing:
    """The state that prevents a log's cleaning, or asks for it, independent of its contents."""

    is_running: bool = False
    pause_count: int = 0
    quarantined: Quarantined | None = None
    leased_to: str | None = None  # the job outside of the broker that cleans it

    @property
    def is_held(self) -> bool:
        """Whether no cleaning begins until somebody ends a pause or a lease."""
        return self.pause_count > 0 or self.leased_to is not None

    @property
    def lease_sentence(self) -> str:
        """The reason why a leased log is not cleaned here."""
        return f"the job {self.leased_to} of odradek pipeline clean cleans it"

    def may_clean(self, now_ms: int) -> bool:
        """Return whether the log is not being cleaned, not held, and not in quarantine."""
        if self.is_running or self.is_held:
            return False
        return self.quarantined is None or now_ms >= self.quarantined.retry_at_ms

    def reason(self, log: LogFacts, dirty: DirtyRange) -> Reason | None:
        """Return the reason to clean the log as soon as possible, None when there is none."""
        return reason_to_clean(log, dirty) if self.quarantined is None else Reason.RETRY


@dataclass(slots=True)
class _Entry:
    public: Quarantined
    log: Log
    config: TopicConfig
    failed_at_ms: int

    @property
    def current(self) -> Quarantined:
        """The current entry: a new configuration of the topic ends the wait."""
        if self.log.config is self.config:
            return self.public
        return replace(self.public, retry_at_ms=self.failed_at_ms)


class Quarantine:
    """The partitions whose last cleaning failed; owned by cleaner.runtime.progress.Progress."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, _Entry] = {}

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._entries

    def all(self) -> tuple[Quarantined, ...]:
        """Return every current entry; a log that is not served here any more has none."""
        return tuple(
            entry.current for entry in self._entries.values() if not entry.log.is_closed
        )

    def of(self, log: Log) -> Quarantined | None:
        """Return a log's entry; another log of the same name has no entry."""
        entry = self._entries.get((log.topic, log.partition))
        return entry.current if entry is not None and entry.log is log else None

    def add(self, log: Log, error: BaseException, now_ms: int) -> Quarantined:
        """Add a partition, for longer after each failure in a row; return its entry."""
        key = log.topic, log.partition
        before = self.of(log)
        failures = before.failures + 1 if before else 1
        # A bucket that was away for a while says nothing about the log.
        doublings = 0 if isinstance(error, BucketFailure) else min(failures - 1, _DOUBLINGS_MAX)
        wait_ms = min(RETRY_MIN_MS << doublings, RETRY_MAX_MS)
        damage = error if isinstance(error, CorruptFile) else None
        entry = Quarantined(
            topic=log.topic,
            partition=log.partition,
            exception=f"{type(error).__name__}: {error}",
            file=str(error.path) if isinstance(error, CorruptFile | DiskFailure) else None,
            position=damage.position if damage else None,
            offset=damage.offset if damage else None,
            since_ms=before.since_ms if before else now_ms,
            failures=failures,
            retry_at_ms=now_ms + wait_ms,
        )
        self._entries[key] = _Entry(entry, log, log.config, now_ms)
        return entry

    def release(self, key: TopicPartition) -> None:
        """Remove a partition, if it has an entry."""
        self._entries.pop(key, None)

    def retry_all(self, now_ms: int) -> None:
        """End the wait of every partition."""
        for entry in self._entries.values():
            at_ms = min(entry.public.retry_at_ms, now_ms)
            entry.public = replace(entry.public, retry_at_ms=at_ms)

    def forget_absent(self, present: Mapping[TopicPartition, Log]) -> None:
        """Drop partitions that no longer exist or are no longer compacted."""
        for key, entry in list(self._entries.items()):
            log = present.get(key)
            # Another log of the same name is a new topic, or was loaded again: it is tried.
            if log is not entry.log or not log.config.compact:
                del self._entries[key]
