"""Refused disk operations: the error that clients get, partitions that go offline and return.

    a write or read is refused    that request gets KAFKA_STORAGE_ERROR, nothing else changes
    a flush is refused            the partition goes offline: its records may not be on the
                                  disk, and the system forgets that it could not write them
    a directory is missing        its partitions are offline

The broker tries to bring offline partitions back, at first after a second and then less and less
often. A log that comes back is read from its recovery point on, written again and flushed, as
after a crash; the other partitions are served all the while. /health names each directory until
it takes writes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek.broker.topics.partitions import Partitions
from odradek.broker.topics.registry import Topics
from odradek.dataclass import dataclass
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import CorruptFile, DiskFailure, StorageError
from odradek.storage.files import FileSystem
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

# The least time that a trouble stays in /health, since a small write may succeed on a full disk.
_SHOWN_MS = 30_000
# The time between two log lines about a disk: it may refuse thousands of operations.
_LOG_INTERVAL_MS = 30_000
_RETRY_MIN_MS, _RETRY_MAX_MS = 1_000, 30_000
_PROBE = ".odradek-probe"


@dataclass(slots=True)
class _Trouble:
    """Operations that a log directory's disk has refused lately, `count` of them.

    `unlogged_count` refusals, with those of the broker's own probes, came after the last log line.
    """

    last: StorageError
    last_ms: int
    logged_ms: int
    count: int = 1
    unlogged_count: int = 0


class Disks:
    """Watches the log directories. The event loop owns it."""

    def __init__(
        self,
        fs: FileSystem,
        topics: Topics,
        partitions: Partitions,
        open_directory: Callable[[Path], LogDirectory],
        now_ms: Callable[[], int],
    ) -> None:
        """`open_directory` opens a log directory, and raises StorageError."""
        self._fs, self._topics, self._partitions = fs, topics, partitions
        self._open_directory, self._now_ms = open_directory, now_ms
        self._troubles: dict[Path, _Trouble] = {}
        self._retry_ms, self._next_retry_ms = _RETRY_MIN_MS, 0
        # The number of operations that each directory has refused since the start.
        self.failures: dict[Path, int] = {}
        # Called with a log that has gone offline.
        self.on_offline: list[Callable[[Log], None]] = []

    def note(self, log: Log, error: StorageError) -> None:
        """Note an error of a log, if the disk is its cause."""
        if isinstance(error, DiskFailure | CorruptFile):
            self.note_directory(log.directory.parent, error)
        failure = log.sync_failure
        if failure is not None and not log.is_closed:
            self.take_offline(log, failure)

    def note_directory(self, path: Path, error: StorageError) -> None:
        """Note that a log directory's disk refused an operation."""
        now_ms = self._now_ms()
        self.failures[path] = self.failures.get(path, 0) + 1
        trouble = self._troubles.get(path)
        if trouble is None:
            logger.error("disk trouble directory=%s: %s", path, error)
            self._troubles[path] = _Trouble(error, now_ms, now_ms)
        else:
            trouble.last, trouble.last_ms = error, now_ms
            trouble.count += 1
            self._report(path, trouble, error)

    def take_offline(self, log: Log, error: StorageError) -> None:
        """Take a log offline after its flush was refused."""
        log.failure = error
        self.note_directory(log.directory.parent, error)
        logger.error("took offline log=%s: %s", log.name, error)
        self._partitions.home_of(log).withdraw(log)
        self._topics.take_offline(log, error)
        self._next_retry_ms = self._now_ms() + self._retry_ms
        for listener in self.on_offline:
            listener(log)

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at, one sentence each."""
        found = [
            f"log directory {path} is offline: {error}"
            for path, error in self._partitions.offline_directories.items()
        ]
        found += [
            f"log directory {path} refused {trouble.count} operations, the last: {trouble.last}"
            for path, trouble in self._troubles.items()
        ]
        found += [
            f"partition {one.topic}-{one.partition} is offline: {one.cause}"
            for one in self._topics.offline()
        ]
        return found

    async def check(self) -> None:
        """Check whether troubles are over, and try to bring back offline partitions."""
        now_ms = self._now_ms()
        over = [
            path for path, one in self._troubles.items() if now_ms - one.last_ms >= _SHOWN_MS
        ]
        for path, refusal in await asyncio.to_thread(self._probe, over):
            trouble = self._troubles[path]
            if refusal is None:
                logger.info("disk trouble is over directory=%s count=%d", path, trouble.count)
                del self._troubles[path]
            else:
                self._report(path, trouble, refusal)
        if now_ms >= self._next_retry_ms:
            await self._bring_back()

    async def _bring_back(self) -> None:
        before = self._offline_count()
        if before == 0:
            return
        for path in list(self._partitions.offline_directories):
            try:
                home = await asyncio.to_thread(self._open_directory, path)
            except StorageError as error:
                self._partitions.offline_directories[path] = error
                continue
            logger.info("brought back directory=%s", path)
            self._partitions.add(home)
        await self._topics.reopen()
        is_better = self._offline_count() < before
        self._retry_ms = _RETRY_MIN_MS if is_better else min(2 * self._retry_ms, _RETRY_MAX_MS)
        self._next_retry_ms = self._now_ms() + self._retry_ms

    def _offline_count(self) -> int:
        return len(self._partitions.offline_directories) + len(self._topics.offline())

    def _report(self, path: Path, trouble: _Trouble, error: StorageError) -> None:
        """Count a refusal that is not the first, and log it if the last line is some time ago."""
        trouble.unlogged_count += 1
        now_ms = self._now_ms()
        if now_ms - trouble.logged_ms >= _LOG_INTERVAL_MS:
            logger.error(
                "disk trouble continues directory=%s count=%d: %s",
                path,
                trouble.unlogged_count,
                error,
            )
            trouble.logged_ms, trouble.unlogged_count = now_ms, 0

    def _probe(self, paths: Sequence[Path]) -> list[tuple[Path, DiskFailure | None]]:
        """Return the error of a write to each directory, or None; runs in a thread."""
        found: list[tuple[Path, DiskFailure | None]] = []
        for path in paths:
            probe = path / _PROBE
            refusal = None
            try:
                self._fs.write_atomically(probe, b"Odradek checks that this disk takes writes\n")
                self._fs.remove(probe)
            except DiskFailure as error:
                refusal = error
            found.append((path, refusal))
        return found
