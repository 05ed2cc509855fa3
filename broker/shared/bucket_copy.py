"""The log of a local partition on its way into the bucket.

    copy     its batches are appended to a copy, whose sealed segments are uploaded
    finish   the log is closed: the rest, and the producers and leader epochs at its end

No row of the catalog names the objects before the partition is shared. Until then a crash leaves
orphans, and the log as it was. A copy has segments of a size for the bucket, and the bytes of
the batches are those of the log.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from odradek.broker.catalog.segment_rows import SegmentRow
from odradek.broker.catalog.storages import share_partition
from odradek.broker.shared.log_copy import Change, LogCopy
from odradek.broker.shared.packing import Part
from odradek.broker.shared.tails import SEGMENT_BYTES_MAX
from odradek.broker.shared.uploads import Uploads
from odradek.storage.cache_directory import CacheDirectory
from odradek.storage.checkpoints import LeftLog
from odradek.storage.copying import append_copied
from odradek.storage.log import Log
from odradek.storage.scan import whole_batches
from odradek.storage.segment import Segment


class BucketCopy(LogCopy):
    """See LogCopy."""

    def __init__(
        self,
        log: Log,
        home: CacheDirectory,
        uploads: Uploads,
        adopt: Callable[[Segment, SegmentRow], None],
        now_ms: Callable[[], int],
    ) -> None:
        """`adopt` lets the file of an uploaded segment be dropped from the disk, in a thread."""
        super().__init__(log, now_ms)
        self._home, self._uploads, self._adopt = home, uploads, adopt
        self._copy: Log | None = None
        self._rows: list[SegmentRow] = []

    async def finish(self, own_id: int, left: LeftLog) -> Change:
        """Upload the rest of the log; return the change of the catalog."""
        log, end_offset = self._log, self._log.log_end_offset
        await self._end_as_the_log()
        copy = self._begun
        if copy.size_bytes:
            copy.log_end_offset = end_offset  # compaction has left nothing in between
            await asyncio.to_thread(copy.roll, self._now_ms(), "the log is closed")
            await self._upload_sealed()
        # The log knows producers whose batches were compacted away; the copy does not.
        end = Part(self._key, log, copy.active, end_offset, log.epochs, is_open=True)
        self._rows += await self._uploads.pack([end])
        return partial(
            share_partition, own_id=own_id, partition=self._key, left=left,
            end_offset=end_offset, rows=self._rows,
        )  # fmt: skip

    async def discard(self, *, is_needed: bool) -> None:
        """Remove the copy; the objects, too, if the partition has stayed local."""
        if self._copy is not None:
            await asyncio.to_thread(self._home.discard, [self._copy])
        if not is_needed and self._rows:
            await self._uploads.changes.drop(self._rows)

    # --- parts ------------------------------------------------------------------------------

    @property
    def _begun(self) -> Log:
        assert self._copy is not None, "it was begun"
        return self._copy

    @property
    def _end_offset(self) -> int:
        return self._begun.log_end_offset

    @property
    def _size_bytes(self) -> int:
        return self._begun.size_bytes

    @property
    def _stored_offset(self) -> int:
        return self._rows[-1].next_offset if self._rows else 0

    async def _begin_at(self, offset: int) -> None:
        log, home = self._log, self._home
        await asyncio.to_thread(home.begin_directory, log.topic, log.partition)
        self._copy = await asyncio.to_thread(
            home.load_log, self._identity, log.config, offset, self._now_ms()
        )

    async def _go_on(self, end_offset: int) -> None:
        while await asyncio.to_thread(self._append, end_offset):
            await self._upload_sealed()

    def _append(self, end_offset: int) -> bool:
        """Append batches up to a segment's end; return False if there are no more.

        It waits, in a thread.
        """
        copy, now_ms = self._begun, self._now_ms()
        while (found := self._read(end_offset)) is not None:
            data = memoryview(found)
            for position, header in whole_batches(data):
                if header.base_offset >= copy.log_end_offset:
                    if copy.active.size_bytes >= SEGMENT_BYTES_MAX:
                        copy.roll(now_ms, "the size of an object")
                    batch = data[position : position + header.size_bytes]
                    append_copied(copy, header, batch, now_ms)
            if copy.active.base_offset > self._stored_offset and len(copy.segments) > 1:
                return True
        return False

    async def _upload_sealed(self) -> None:
        copy = self._begun
        for segment, following in itertools.pairwise(copy.segments):
            end_offset = following.base_offset
            if end_offset > self._stored_offset:
                part = Part(self._key, copy, segment, end_offset, copy.epochs, is_open=False)
                self._rows += await self._uploads.pack([part])
                await asyncio.to_thread(self._adopt, segment, self._rows[-1])
