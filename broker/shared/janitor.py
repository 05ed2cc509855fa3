"""Frees the parts of the WAL that segments hold, and deletes objects that no row names.

One broker does it: the one with the lowest node id. Two that do it at once harm nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from odradek.broker.catalog.garbage_rows import due_garbage, forget_garbage
from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.wal_trimming import Trimmed, trim_wal
from odradek.broker.counters.sharing import SharedCounts
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared.bucket import Bucket
from odradek.broker.shared.obstacle import Obstacle

logger = logging.getLogger(__name__)

_LOOK_S = 5.0
_ENTRIES_AT_ONCE = 512
_KEYS_AT_ONCE = 256
# A look at the WAL ends after so many entries that are needed.
_NEEDED_MAX = 2 * _ENTRIES_AT_ONCE


class Janitor:
    """Owned by the event loop."""

    def __init__(
        self,
        bucket: Bucket,
        line: Line,
        delay_ms: Callable[[], int],
        is_due: Callable[[], bool],
        counts: SharedCounts,
    ) -> None:
        """`delay_ms` returns the age of garbage to delete, `is_due` whether this broker looks."""
        self._bucket, self._line = bucket, line
        self._delay_ms, self._is_due, self._counts = delay_ms, is_due, counts
        self._task: asyncio.Task[None] | None = None
        self._place = -1  # the end of the last look at entries behind the first needed ones
        self.obstacle = Obstacle(logger, "free the WAL")

    def start(self) -> None:
        """Begin to look now and then."""
        self._task = start_task("free the WAL", self._run())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def free_wal(self) -> int:
        """Free entries of the WAL; return their bytes. Raises MetadataError and DamagedEntry.

        Most are needed no more in their order. But a log with few records waits for minutes until
        it is stored: those behind its entries are looked at in turns.
        """
        freed_bytes, place = await self._free_from(-1)
        if place is not None:
            more_bytes, place = await self._free_from(max(place, self._place))
            freed_bytes += more_bytes
        self._place = -1 if place is None else place
        return freed_bytes

    async def _free_from(self, place: int | None) -> tuple[int, int | None]:
        """Free entries after a place; return their bytes and the end, None for that of the WAL."""
        freed_bytes = needed = 0
        while place is not None and needed < _NEEDED_MAX:
            trimmed = await self._line.touch(partial(self._trim, place))
            freed_bytes += trimmed.freed_bytes
            self._counts.freed_wal_bytes += trimmed.freed_bytes
            needed = needed + trimmed.count if not trimmed.freed_count else 0
            place = trimmed.place
        return freed_bytes, place

    async def delete_garbage(self) -> int:
        """Delete objects; return their number. Raises MetadataError and ObjectStoreError."""
        loop, count = asyncio.get_running_loop(), 0
        while True:
            keys = await self._line.touch(self._due)
            if not keys:
                return count
            await loop.run_in_executor(self._bucket.reads, self._bucket.store.delete, keys)
            await self._line.touch(partial(forget_garbage, keys=keys))
            count += len(keys)
            self._counts.deleted_objects += len(keys)

    # --- parts -----------------------------------------------------------------------------

    def _trim(self, place: int, connection: Connection) -> Trimmed:
        return trim_wal(connection, self._line.engine, place, _ENTRIES_AT_ONCE)

    def _due(self, connection: Connection) -> list[str]:
        return due_garbage(connection, self._line.engine, self._delay_ms(), _KEYS_AT_ONCE)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if not self._is_due():
                self.obstacle.end()
                continue
            try:
                freed_bytes = await self.free_wal()
                count = await self.delete_garbage()
            except Exception as error:  # The root of a task: the next try may succeed.
                self.obstacle.note(error)
            else:
                self.obstacle.end()
                if freed_bytes or count:
                    logger.info("freed wal_bytes=%d, deleted objects=%d", freed_bytes, count)
