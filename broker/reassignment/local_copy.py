"""The log of a shared partition on its way to the disks of this host.

    copy     its batches are appended to a copy in one of the log directories (copied_log.py)
    finish   the log is closed: the rest, and the producers at its end

The copy becomes the log once the catalog names this host. Before, a crash leaves a copy that the
next start removes, and the log as it was.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.storages import unshare_partition
from odradek.broker.reassignment.parts import Parts
from odradek.broker.shared.log_copy import Change, LogCopy
from odradek.storage.checkpoints import LeftLog
from odradek.storage.copied_log import CopiedLog, Owner, begin_copy, discard_copies
from odradek.storage.log import Log

_NO_MOVE = -1


class LocalCopy(LogCopy):
    """See LogCopy."""

    def __init__(self, broker: Parts, engine: Engine, log: Log) -> None:
        """`engine` is that of the catalog."""
        super().__init__(log, broker.clock.now_ms)
        self._fs, self._own, self._engine = broker.fs, broker.brokers.own, engine
        # Not the directory of shared logs, which is no place of local ones.
        self._homes = broker.partitions.local_directories
        self._copy: CopiedLog | None = None

    async def finish(self, own_id: int, left: LeftLog) -> Change:
        """Copy the rest of the log; return the change of the catalog."""
        log, end_offset = self._log, self._log.log_end_offset
        await self._end_as_the_log()
        made = await asyncio.to_thread(
            self._begun.close, log.log_start_offset, end_offset, log.producers.snapshot()
        )
        self.left = replace(made, cleaner_offset=left.cleaner_offset)
        return partial(
            unshare_partition, engine=self._engine, own_id=own_id, partition=self._key,
            host=self._own.host, left=self.left, end_offset=end_offset,
        )  # fmt: skip

    async def discard(self, *, is_needed: bool) -> None:
        """Remove the copy if the partition has stayed in the bucket."""
        if not is_needed and self._copy is not None:
            await asyncio.to_thread(self._copy.discard)

    # --- parts ------------------------------------------------------------------------------

    @property
    def _begun(self) -> CopiedLog:
        assert self._copy is not None, "it was begun"
        return self._copy

    @property
    def _end_offset(self) -> int:
        return self._begun.end_offset

    @property
    def _size_bytes(self) -> int:
        return self._begun.size_bytes

    async def _begin_at(self, offset: int) -> None:
        owner = Owner(self._own.node_id, _NO_MOVE)
        home = min(self._homes, key=lambda one: len(one.logs))
        await asyncio.to_thread(discard_copies, self._fs, self._homes, self._identity)
        self._copy = await asyncio.to_thread(
            begin_copy, self._fs, home, self._identity, owner, self._log.config, offset,
            self._now_ms(),
        )  # fmt: skip

    async def _go_on(self, end_offset: int) -> None:
        await asyncio.to_thread(self._append, end_offset)

    def _append(self, end_offset: int) -> None:
        """Append the batches before an offset. It waits, in a thread."""
        now_ms = self._now_ms()
        while (found := self._read(end_offset)) is not None:
            self._begun.append(found, now_ms)
