"""A log on its way to the other storage: copied nearly whole while it is served, then closed."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.storage.checkpoints import LeftLog
from odradek.storage.log import Log
from odradek.storage.readable_log import LogIdentity
from odradek.storage.scan import whole_batches

Change = Callable[[Connection], Sequence[Partition]]
"""Changes the catalog; returns the partitions that it has changed."""

_READ_BYTES = 4 << 20
# The rest of a log that is copied after it was closed.
_REST_BYTES = 8 << 20
# More rounds do not help: producers are as fast as the copy.
_ROUNDS_MAX = 50


class LogCopy(ABC):
    """Owned by the event loop. Its methods raise StorageError and ObjectStoreError."""

    def __init__(self, log: Log, now_ms: Callable[[], int]) -> None:
        self._log, self._now_ms = log, now_ms
        self._key: Partition = (log.topic_id, log.partition)
        self._identity = LogIdentity(log.topic, log.partition, log.topic_id)
        # How a copy on the disks is left, once it is finished.
        self.left: LeftLog | None = None

    async def copy(self) -> None:
        """Copy nearly all of the log, which takes appends meanwhile."""
        log = self._log
        await self._begin_at(await asyncio.to_thread(self._first_offset))
        for _ in range(_ROUNDS_MAX):
            begin = self._end_offset
            await self._go_on(log.high_watermark)
            if log.size_bytes - self._size_bytes <= _REST_BYTES or self._end_offset == begin:
                return

    @abstractmethod
    async def finish(self, own_id: int, left: LeftLog) -> Change:
        """Copy the rest of the log, which is closed; return the change of the catalog."""

    @abstractmethod
    async def discard(self, *, is_needed: bool) -> None:
        """Remove temporary files; the whole copy, too, if the partition keeps its storage."""

    # --- parts ------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _end_offset(self) -> int:
        """The offset after the last batch of the copy."""

    @property
    @abstractmethod
    def _size_bytes(self) -> int:
        """The bytes of the batches that were copied."""

    @abstractmethod
    async def _begin_at(self, offset: int) -> None:
        """Begin an empty copy, also instead of another one."""

    @abstractmethod
    async def _go_on(self, end_offset: int) -> None:
        """Copy the batches before an offset."""

    async def _end_as_the_log(self) -> None:
        """Copy the rest of the closed log; a copy without batches ends where the log does, too."""
        end_offset = self._log.log_end_offset
        await self._go_on(end_offset)
        if not self._size_bytes and self._end_offset < end_offset:
            await self._begin_at(end_offset)

    def _first_offset(self) -> int:
        """Return where a copy begins: with the batch at the log's start; in a thread."""
        start_offset = self._log.log_start_offset
        found = self._log.read(start_offset, 1, at_least_one=True)
        if found is None:
            return start_offset
        _, header = next(whole_batches(memoryview(found.read())))
        return min(header.base_offset, start_offset)

    def _read(self, end_offset: int) -> bytes | None:
        """Return the next batches, None if there are none before an offset; in a thread."""
        if self._end_offset >= end_offset:
            return None
        begin = max(self._end_offset, self._log.log_start_offset)
        found = self._log.read(begin, _READ_BYTES, at_least_one=True)
        return None if found is None else found.read()
