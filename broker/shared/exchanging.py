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


def exchange(
    uploads: Uploads, log: Log, old: Sequence[Segment], new: Sequence[Segment]
) -> Callable[[StorageError], None]:
    """Exchange stored segments for cleaned ones; a thread of the cleaner waits here.

    Returns the function to call if the log does not follow. Raises StaleSegments and
    BucketFailure.
    """
    work = _exchange(uploads, log, old, new)
    try:
        asyncio.run_coroutine_threadsafe(work, uploads.loop).result()
    except (MetadataError, ObjectStoreError) as error:
        raise BucketFailure(f"{log.name}: {error}") from error
    return partial(uploads.fail, log)


async def _exchange(
    uploads: Uploads, log: Log, old: Sequence[Segment], new: Sequence[Segment]
) -> None:
    async with uploads.turn_of(log) as (tail, session):
        rows = stored_rows(tail, old)
        ends = [one.base_offset for one in new[1:]] + [rows[-1].next_offset]
        parts = [
            Part(tail.key, log, one, end, log.epochs, is_open=False)
            for one, end in zip(new, ends, strict=True)
        ]
        made = await uploads.pack(parts)
        await _replace(uploads, tail, rows, made, new, session)
        uploads.counts.exchanged_segments += len(rows)


async def exchange_stored(
    uploads: Uploads,
    tail: Tail,
    rows: Sequence[SegmentRow],
    made: SegmentRow,
    new: Segment,
    follow: Callable[[], Awaitable[None]],
) -> None:
    """Exchange stored segments for one in an object that no row names yet.

    The log has them when that begins; `follow` lets it follow before the catalog gets its start.
    Raises StaleSegments, SessionClosed and NotLed, and the errors of `follow`.
    """
    try:
        async with uploads.turn_of(tail.log) as (present, session):
            if present is not tail or not tail.has_segments(rows):
                raise StaleSegments(f"{tail.log.name}: its segments have changed meanwhile")
            await _replace(uploads, tail, rows, [made], [new], session)
            await follow()
    except StaleSegments:
        await uploads.changes.drop([made])
        raise


async def _replace(
    uploads: Uploads,
    tail: Tail,
    rows: Sequence[SegmentRow],
    made: Sequence[SegmentRow],
    new: Sequence[Segment],
    session: int,
) -> None:
    """Exchange rows in the catalog; nothing else runs between its answer and the return."""
    old = [(one.base_offset, one.key) for one in rows]
    change = partial(exchange_segments, session=session, partition=tail.key, old=old, new=made)
    await uploads.changes.name(made, change)
    tail.exchanged(rows, made)
    for row, segment in zip(made, new, strict=True):
        tail.kept[row.base_offset] = segment


def stored_rows(tail: Tail, segments: Sequence[Segment]) -> list[SegmentRow]:
    """Return the rows of sealed segments. Raises StaleSegments if one is not stored."""
    found = [tail.rows.get(one.base_offset) for one in segments]
    rows = [one for one in found if one is not None and not one.is_open]
    if len(rows) < len(segments):
        raise StaleSegments(f"{tail.log.name}: not all segments are stored")
    return rows
