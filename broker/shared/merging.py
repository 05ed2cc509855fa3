"""Merges small neighbouring segments of shared logs that are not compacted.

    chosen    by the rows of its segments (cleaner/rules/merging.py), once a log has more of them
    written   their batches byte for byte, in a thread; then uploaded
    exchanged in the catalog, then in the log: as cleaned segments are

1. One merge runs at a time, and the cleaner leaves the log alone meanwhile. A log whose topic is
   compacted is the cleaner's.
2. Between the choice and the exchange retention, a deletion of records, or another leader may take
   segments away. Then nothing is exchanged, and the others are looked at again.
3. If retention deletes the first segments while the catalog exchanges them, the log puts the new
   segment in the place of the others; its log start offset stays. So retention and merges never
   make a log wait to be opened again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from odradek.broker.catalog.segment_rows import NotLed, SegmentRow
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.counters.sharing import SharedCounts
from odradek.broker.loop.priority import give_way
from odradek.broker.loop.tasks import start_task
from odradek.broker.shared.exchanging import exchange_stored
from odradek.broker.shared.obstacle import Obstacle
from odradek.broker.shared.packing import Part, packed_segment, segment_sizes
from odradek.broker.shared.tails import SEGMENT_BYTES_MAX, Tail
from odradek.broker.shared.uploads import Uploads
from odradek.cleaner.rules.merging import MergeLimits, StoredSegment, choose_merge
from odradek.storage.errors import StaleSegments, StorageError
from odradek.storage.exchange import Exchange, still_present
from odradek.storage.log import Log
from odradek.storage.merged_segment import Source, discard_merged, write_merged
from odradek.storage.objects.packs import read_packed_file
from odradek.storage.objects.store import ObjectStore
from odradek.storage.segment import LOG, SNAPSHOT, Segment

logger = logging.getLogger(__name__)

_LOOK_S, _RETRY_S = 10.0, 60.0
# The last rows of a log, which the loop looks at in some milliseconds. Those before them were
# looked at when they were among the last ones; if many came since, merges make room for them.
_ROWS_MAX = 200


class Pauses(Protocol):
    """The cleaner, as far as a merge keeps it away from a log."""

    async def pause_and_wait(self, topic: str, partition: int) -> None:
        """Abort a partition's cleaning, and begin none until each pause has had a resume()."""

    def resume(self, topic: str, partition: int) -> None:
        """Undo one pause."""


class Merging:
    """Owned by the event loop."""

    def __init__(
        self,
        store: ObjectStore,
        uploads: Uploads,
        now_ms: Callable[[], int],
        counts: SharedCounts,
    ) -> None:
        self._store, self._uploads = store, uploads
        self._now_ms, self._counts = now_ms, counts
        self._thread = ThreadPoolExecutor(1, "bucket-merges", initializer=give_way)
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.obstacle = Obstacle(logger, "merge segments of shared logs")

    def start(self, cleaner: Pauses) -> None:
        """Begin to look now and then."""
        self._task = start_task("merge segments", self._run(cleaner))

    async def close(self) -> None:
        """Stop, once a merge that is being written is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)

    async def merge_all(self, cleaner: Pauses) -> bool:
        """Merge all that is to be merged now; return False if some could not be."""
        is_done = True
        async with self._turn:
            for tail in self._uploads.take_grown():
                await asyncio.sleep(0)  # others take turns
                try:
                    while await self._merge_next(tail, cleaner):
                        pass
                except (StaleSegments, SessionClosed, NotLed) as error:
                    logger.info("did not merge segments: %s", error)
                    self._uploads.look_again(tail)
                except Exception as error:  # One log must not stop the others.
                    self._uploads.look_again(tail)
                    if not tail.log.is_closed:  # else its files were removed meanwhile
                        self.obstacle.note(error)
                        is_done = False
        if is_done:
            self.obstacle.end()
        return is_done

    # --- parts -----------------------------------------------------------------------------

    async def _run(self, cleaner: Pauses) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if not await self.merge_all(cleaner):
                await asyncio.sleep(_RETRY_S)

    async def _merge_next(self, tail: Tail, cleaner: Pauses) -> bool:
        """Merge some segments of a log; return False if there is nothing to merge."""
        log = tail.log
        if not _choose(tail):
            return False
        await cleaner.pause_and_wait(log.topic, log.partition)
        try:
            rows = _choose(tail)  # the topic, too, may have changed
            if rows:
                await self._merge(tail, rows)
        finally:
            cleaner.resume(log.topic, log.partition)
        return bool(rows)

    async def _merge(self, tail: Tail, rows: Sequence[SegmentRow]) -> None:
        log, loop = tail.log, asyncio.get_running_loop()
        if not tail.has_segments(rows):
            raise StaleSegments(f"{log.name}: the catalog has other segments than the log")
        old = tail.segments_of(rows)
        new = await loop.run_in_executor(self._thread, partial(self._write, log, old, rows))
        try:
            part = Part(tail.key, log, new, rows[-1].next_offset, log.epochs, is_open=False)
            (made,) = await self._uploads.pack([part])
            follow = partial(self._follow, log, old, new)
            await exchange_stored(self._uploads, tail, rows, made, new, follow)
        finally:
            if new not in log.segments and new.suffix:
                discard_merged(new.fs, new.directory, new.base_offset)
        self._counts.merged_segments += len(rows)
        self._counts.merged_bytes += made.size_bytes
        logger.info(
            "merged segments log=%s count=%d bytes=%d base=%d next=%d",
            log.name, len(rows), made.size_bytes, made.base_offset, made.next_offset,
        )  # fmt: skip

    def _write(self, log: Log, old: Sequence[Segment], rows: Sequence[SegmentRow]) -> Segment:
        """Write the segment that is to be uploaded; in a thread."""
        stored = [packed_segment(row) for row in rows]
        # A log that was built from the bucket has no snapshots but the last one.
        fs, path = old[0].fs, log.producers.snapshot_path(rows[-1].next_offset)
        if SNAPSHOT in stored[-1].files and not fs.exists(path):
            snapshot = read_packed_file(self._store, rows[-1].key, stored[-1], SNAPSHOT)
            fs.write_bytes(path, bytes(snapshot))
        sources = [
            Source(segment, one.files[LOG].crc)
            for segment, one in zip(old, stored, strict=True)
        ]
        return write_merged(fs, sources, log.config.index_interval_bytes)

    async def _follow(self, log: Log, old: Sequence[Segment], new: Segment) -> None:
        """Let the log have the segments that the catalog has."""
        present = still_present(old, log.segments)
        if log.is_closed or not present:  # it is opened again, or retention has deleted all
            return
        exchange: Exchange | None = None
        try:
            exchange = log.begin_exchange(present, [new], self._now_ms())
            exchange.step()
            has_more = exchange.step()  # which comes at once: the log has the new segment
            while has_more:
                await asyncio.sleep(0)  # others take turns
                has_more = exchange.step()
        except StorageError as error:
            if exchange is not None:
                exchange.undo()
            self._uploads.fail(log, error)
            raise


def _choose(tail: Tail) -> Sequence[SegmentRow]:
    """Return the rows of the segments that are to become one; none if there are none."""
    log = tail.log
    if log.is_closed or log.config.compact:
        return ()
    rows = tail.sealed_rows[-_ROWS_MAX:]
    limits = MergeLimits.of(log.config, SEGMENT_BYTES_MAX)
    chosen = choose_merge([_facts(row) for row in rows], limits)
    return () if chosen is None else rows[chosen.start : chosen.stop]


def _facts(row: SegmentRow) -> StoredSegment:
    sizes = segment_sizes(row)
    return StoredSegment(
        row.base_offset,
        row.next_offset,
        row.size_bytes,
        sizes.index_bytes,
        sizes.time_index_bytes,
        row.first_timestamp,
        row.max_timestamp,
    )
