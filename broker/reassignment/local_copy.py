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
from odradek.broker.ids import Partition
from odradek.broker.reassignment.parts import Parts
from odradek.broker.shared.bucket_copy import REST_BYTES, ROUNDS_MAX, Change
from odradek.storage.checkpoints import LeftLog
from odradek.storage.copied_log import CopiedLog, Owner, begin_copy, discard_copies
from odradek.storage.log import Log
from odradek.storage.readable_log import LogIdentity

_READ_BYTES = 4 << 20
_NO_MOVE = -1


class LocalCopy:
    """Owned by the event loop. Its methods raise StorageError."""

    def __init__(self, broker: Parts, engine: Engine, log: Log) -> None:
        """`engine` is that of the catalog."""
        self._fs, self._now_ms, self._own = broker.fs, broker.clock.now_ms, broker.brokers.own
        # Not the directory of shared logs, which is no place of local ones.
        self._homes = broker.partitions.local_directories
        self._engine, self._log = engine, log
        self._key: Partition = (log.topic_id, log.partition)
        self._copy: CopiedLog | None = None
        # How the copy is left, once it is finished.
        self.left: LeftLog | None = None

    async def copy(self) -> None:
        """Copy nearly all of the log, which takes appends meanwhile."""
        copy = await self._begin_at(self._log.segments[0].base_offset)
        for _ in range(ROUNDS_MAX):
            begin = copy.end_offset
            await asyncio.to_thread(self._append, copy)
            if self._log.size_bytes - copy.size_bytes <= REST_BYTES or begin == copy.end_offset:
                return

    async def finish(self, own_id: int, left: LeftLog) -> Change:
        """Copy the rest of the log, which is closed; return the change of the catalog."""
        log, copy = self._log, self._copy
        assert copy is not None, "it was begun"
        await asyncio.to_thread(self._append, copy)
        end_offset = log.log_end_offset
        if not copy.size_bytes and copy.end_offset < end_offset:
            copy = await self._begin_at(end_offset)
        made = await asyncio.to_thread(
            copy.close, log.log_start_offset, end_offset, log.producers.snapshot()
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

    async def _begin_at(self, offset: int) -> CopiedLog:
        log, owner = self._log, Owner(self._own.node_id, _NO_MOVE)
        identity = LogIdentity(log.topic, log.partition, log.topic_id)
        home = min(self._homes, key=lambda one: len(one.logs))
        await asyncio.to_thread(discard_copies, self._fs, self._homes, identity)
        self._copy = await asyncio.to_thread(
            begin_copy, self._fs, home, identity, owner, log.config, offset, self._now_ms()
        )
        return self._copy

    def _append(self, copy: CopiedLog) -> None:
        """Append all that the log has now. It waits, in a thread."""
        log, now_ms = self._log, self._now_ms()
        end_offset = log.high_watermark
        while copy.end_offset < end_offset:
            begin = max(copy.end_offset, log.log_start_offset)
            found = log.read(begin, _READ_BYTES, at_least_one=True)
            if found is None:
                return
            copy.append(bytes(found.read()), now_ms)
