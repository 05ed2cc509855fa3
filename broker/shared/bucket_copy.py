"""The log of a local partition on its way into the bucket.

    copy     its batches are appended to a copy, whose sealed segments are uploaded
    finish   the log is closed: the rest, and the producers and leader epochs at its end

No row of the catalog names the objects before the partition is shared. Until then a crash leaves
orphans, and the log as it was. A copy has segments of a size for the bucket, and the bytes of
the batches are those of the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from odradek.broker.catalog.segment_rows import SegmentRow
from odradek.broker.catalog.storages import share_partition
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared.packing import Part
from odradek.broker.shared.tails import SEGMENT_BYTES_MAX
from odradek.broker.shared.uploads import Uploads
from odradek.storage.cache_directory import CacheDirectory
from odradek.storage.checkpoints import LeftLog
from odradek.storage.copying import append_copied
from odradek.storage.log import Log
from odradek.storage.readable_log import LogIdentity
from odradek.storage.scan import whole_batches
from odradek.storage.segment import Segment

Change = Callable[[Connection], Sequence[Partition]]
"""Changes the catalog; returns the partitions that it has changed."""

_READ_BYTES = 4 << 20
# The rest of a log that is copied after it was closed.
REST_BYTES = 8 << 20
# More rounds do not help: producers are as fast as the bucket.
ROUNDS_MAX = 50


class BucketCopy:
    """Owned by the event loop. Its methods raise StorageError and ObjectStoreError."""

    def __init__(
        self,
        log: Log,
        home: CacheDirectory,
        uploads: Uploads,
        adopt: Callable[[Segment, SegmentRow], None],
        now_ms: Callable[[], int],
    ) -> None:
        """`adopt` lets the file of an uploaded segment be dropped from the disk, in a thread."""
        self._log, self._home, self._uploads = log, home, uploads
        self._adopt, self._now_ms = adopt, now_ms
        self._key: Partition = (log.topic_id, log.partition)
        self._copy: Log | None = None
        self.rows: list[SegmentRow] = []

    @property
    def copied_bytes(self) -> int:
        """The bytes of the batches that are in the bucket or in the copy."""
        return 0 if self._copy is None else self._copy.size_bytes

    async def copy(self) -> None:
        """Upload nearly all of the log, which takes appends meanwhile."""
        for _ in range(ROUNDS_MAX):
            begin = self._end_offset()
            await self._copy_up_to(self._log.log_end_offset)
            if self._log.size_bytes - self.copied_bytes <= REST_BYTES or (
                begin == self._end_offset()
            ):
                return

    async def finish(self, own_id: int, left: LeftLog) -> Change:
        """Upload the rest of the log, which is closed; return the change of the catalog."""
        log, end_offset = self._log, self._log.log_end_offset
        await self._copy_up_to(end_offset)
        copy = await self._begun()
        if copy.size_bytes:
            copy.log_end_offset = end_offset  # compaction has left nothing in between
            await asyncio.to_thread(copy.roll, self._now_ms(), "the log is closed")
            await self._upload_sealed()
        elif copy.log_end_offset < end_offset:
            copy = await self._begin_at(end_offset)
        # The log knows producers whose batches were compacted away; the copy does not.
        end = Part(self._key, log, copy.active, end_offset, log.epochs, is_open=True)
        self.rows += await self._uploads.pack([end])
        return partial(
            share_partition, own_id=own_id, partition=self._key, left=left,
            end_offset=end_offset, rows=self.rows,
        )  # fmt: skip

    async def discard(self, *, is_needed: bool) -> None:
        """Remove the copy; the objects, too, if the partition has stayed local."""
        if self._copy is not None:
            await asyncio.to_thread(self._home.discard, [self._copy])
        if not is_needed and self.rows:
            await self._uploads.drop(self.rows)

    def _end_offset(self) -> int:
        return -1 if self._copy is None else self._copy.log_end_offset

    async def _begun(self) -> Log:
        return self._copy or await self._begin_at(self._log.segments[0].base_offset)

    async def _begin_at(self, offset: int) -> Log:
        log = self._log
        identity = LogIdentity(log.topic, log.partition, log.topic_id)
        await asyncio.to_thread(self._home.begin_directory, log.topic, log.partition)
        self._copy = await asyncio.to_thread(
            self._home.load_log, identity, log.config, offset, self._now_ms()
        )
        return self._copy

    async def _copy_up_to(self, end_offset: int) -> None:
        copy = await self._begun()
        while copy.log_end_offset < end_offset:
            if not await asyncio.to_thread(self._append, copy, end_offset):
                return
            await self._upload_sealed()

    def _append(self, copy: Log, end_offset: int) -> bool:
        """Append some batches; return False if there are none. It waits, in a thread."""
        now_ms = self._now_ms()
        while copy.log_end_offset < end_offset:
            found = self._log.read(
                max(copy.log_end_offset, self._log.log_start_offset),
                _READ_BYTES,
                at_least_one=True,
            )
            if found is None:
                return False
            data = memoryview(found.read())
            for position, header in whole_batches(data):
                if header.base_offset >= copy.log_end_offset:
                    if copy.active.size_bytes >= SEGMENT_BYTES_MAX:
                        copy.roll(now_ms, "the size of an object")
                    batch = data[position : position + header.size_bytes]
                    append_copied(copy, header, batch, now_ms)
            if len(copy.segments) > 1 and copy.segments[-2].base_offset >= self._stored_offset:
                return True
        return True

    @property
    def _stored_offset(self) -> int:
        return self.rows[-1].next_offset if self.rows else 0

    async def _upload_sealed(self) -> None:
        copy = self._copy
        assert copy is not None
        for segment, following in zip(copy.segments, copy.segments[1:], strict=False):
            if following.base_offset > self._stored_offset:
                part = Part(
                    self._key, copy, segment, following.base_offset, copy.epochs, is_open=False
                )
                self.rows += await self._uploads.pack([part])
                await asyncio.to_thread(self._adopt, segment, self.rows[-1])
