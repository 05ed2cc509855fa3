"""Exchanges stored segments for others with the records that remain: first in the catalog.

The log follows. If it cannot, it is built again by the catalog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from odradek.broker.catalog.segment_rows import SegmentRow, exchange_segments
from odradek.broker.errors import MetadataError
from odradek.broker.shared.packing import Part
from odradek.broker.shared.tails import Tail
from odradek.broker.shared.uploads import Uploads
from odradek.storage.errors import BucketFailure, StaleSegments, StorageError
from odradek.storage.log import Log
from odradek.storage.objects.store import ObjectStoreError
from odradek.storage.segment import Segment


class CleanedUpload:
    """A cleaned segment that is uploaded to replace stored ones; a cleaner's thread owns it."""

    def __init__(
        self, uploads: Uploads, log: Log, old: Sequence[Segment], new: Sequence[Segment]
    ) -> None:
        self._uploads, self._log, self._old = uploads, log, old
        (self._new,) = new
        self._made: SegmentRow | None = None
        self._is_discarded = False
        self._uploading = asyncio.run_coroutine_threadsafe(self._upload(), uploads.loop)

    def complete(self) -> Callable[[StorageError], None]:
        """Wait for the upload, and exchange the segments in the catalog.

        Returns the function to call if the log does not follow. Raises StaleSegments and
        BucketFailure.
        """
        try:
            work = self._exchange(*self._uploading.result())
            asyncio.run_coroutine_threadsafe(work, self._uploads.loop).result()
        except (MetadataError, ObjectStoreError) as error:
            raise BucketFailure(f"{self._log.name}: {error}") from error
        return partial(self._uploads.fail, self._log)

    def discard(self) -> None:
        """Let the object be deleted, perhaps once it is there."""
        asyncio.run_coroutine_threadsafe(self._discard(), self._uploads.loop)

    async def _upload(self) -> tuple[Tail, list[SegmentRow], SegmentRow]:
        """Upload the segment; return the rows that it replaces, and its own."""
        async with self._uploads.turn_of(self._log) as (tail, _):
            rows = stored_rows(tail, self._old)
        end, epochs = rows[-1].next_offset, self._log.epochs
        part = Part(tail.key, self._log, self._new, end, epochs, is_open=False)
        (self._made,) = await self._uploads.pack([part])
        if self._is_discarded:
            await self._discard()
        return tail, rows, self._made

    async def _exchange(self, tail: Tail, rows: list[SegmentRow], made: SegmentRow) -> None:
        # The log follows in the cleaner's thread.
        await exchange_stored(self._uploads, tail, rows, made, self._new)
        self._uploads.counts.exchanged_segments += len(rows)

    async def _discard(self) -> None:
        self._is_discarded = True
        if self._made is not None:
            await self._uploads.changes.drop([self._made])


async def exchange_stored(
    uploads: Uploads,
    tail: Tail,
    rows: Sequence[SegmentRow],
    made: SegmentRow,
    new: Segment,
    follow: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Exchange stored segments for one in an object that no row names yet.

    The log has them when that begins; `follow` lets it follow before the catalog gets its start.
    Raises StaleSegments, SessionClosed and NotLed, and the errors of `follow`.
    """
    old = [(one.base_offset, one.key) for one in rows]
    is_named = False
    try:
        async with uploads.turn_of(tail.log) as (present, led):
            if present is not tail or not tail.has_segments(rows):
                raise StaleSegments(f"{tail.log.name}: its segments have changed meanwhile")
            change = partial(
                exchange_segments, led=led, partition=tail.key, old=old, new=[made]
            )
            await uploads.changes.commit(change)
            # Nothing else has run since the catalog's answer.
            is_named = True
            tail.exchanged(rows, [made])
            tail.kept[made.base_offset] = new
            if follow is not None:
                await follow()
    except (MetadataError, StorageError):
        if not is_named:
            await uploads.changes.drop([made])
        raise


def stored_rows(tail: Tail, segments: Sequence[Segment]) -> list[SegmentRow]:
    """Return the rows of sealed segments. Raises StaleSegments if one is not stored."""
    found = [tail.rows.get(one.base_offset) for one in segments]
    rows = [one for one in found if one is not None and not one.is_open]
    if len(rows) < len(segments):
        raise StaleSegments(f"{tail.log.name}: not all segments are stored")
    return rows
