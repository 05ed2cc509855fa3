"""Opens the logs of a directory in threads, and logs how far that has come."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

from odradek.broker.topics.states import Partition, Wanted, as_offline
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import StorageError
from odradek.storage.readable_log import LogIdentity

logger = logging.getLogger(__name__)

_PROGRESS_S = 5.0


class Progress:
    """Logs the progress of loading now and then; threads share it."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0
        self._lock = threading.Lock()
        self._said_s = time.monotonic()

    def advance(self) -> None:
        """Note that a log is loaded."""
        with self._lock:
            self._done += 1
            now_s = time.monotonic()
            if now_s - self._said_s >= _PROGRESS_S:
                self._said_s = now_s
                logger.info("loading logs done=%d of=%d", self._done, self._total)


def open_some(
    home: LogDirectory,
    shared: Iterator[tuple[int, Wanted]],
    now_ms: int,
    progress: Progress,
) -> list[tuple[LogDirectory, tuple[int, Wanted], Partition]]:
    """Open logs of a directory until none is left; runs in a thread."""
    opened: list[tuple[LogDirectory, tuple[int, Wanted], Partition]] = []
    for at, one in shared:
        record = one.record
        identity = LogIdentity(record.name, one.number, record.topic_id)
        result: Partition
        try:
            result = home.open_log(
                identity,
                one.config,
                now_ms=now_ms,
                failed=one.failed,
                left=one.left,
                leader_epoch_min=record.leaders[one.number].epoch if record.leaders else -1,
            )
        except StorageError as error:
            result = as_offline(one, error)
        opened.append((home, (at, one), result))
        progress.advance()
    try:
        home.sync()
    except StorageError as error:
        return [(home, key, as_offline(key[1], error)) for _, key, _ in opened]
    return opened
