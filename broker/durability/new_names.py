"""Makes the names of new logs' files durable, soon after their first append and off the loop.

A new log's directory is not synced before it has records: two thousand partitions would wait for
two thousand syncs. Its first flush syncs it, and its first roll must, on the loop, where no flush
came before. So that it need not, each new log is synced a second after its first append.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from odradek.storage.errors import StorageError
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

WAIT_S = 1.0

OnAppend = Callable[[Log, int, int], None]


class NewNames:
    """The logs whose names a crash may still take. The event loop owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._logs: list[Log] = []
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, log: Log, on_append: OnAppend) -> OnAppend:
        """Return the log's on_append, which notes its first append if it must be synced."""
        if log.has_durable_names:
            return on_append

        def begin(log: Log, size_bytes: int, record_count: int) -> None:
            log.on_append = on_append
            self._logs.append(log)
            if self._timer is None:
                self._timer = self._loop.call_later(WAIT_S, self._sync)
            on_append(log, size_bytes, record_count)

        return begin

    def close(self) -> None:
        """Sync no more: the stop flushes all logs."""
        if self._timer is not None:
            self._timer.cancel()

    def _sync(self) -> None:
        self._timer = None
        logs, self._logs = self._logs, []
        # A log with a failure is repaired when it is loaded again.
        unsure = [log for log in logs if not (log.has_durable_names or log.failure)]
        if unsure:
            self._loop.run_in_executor(None, _sync_names, unsure)


def _sync_names(logs: Sequence[Log]) -> None:
    """Sync the directories of logs that may be deleted meanwhile; runs in a thread."""
    for log in logs:
        try:
            if not log.is_deleted:
                log.sync_names()
        except StorageError as error:
            if not log.is_deleted:
                logger.warning(
                    "failed to sync a new log's directory, its first roll tries again log=%s "
                    "error=%s", log.name, error,
                )  # fmt: skip
