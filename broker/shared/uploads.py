"""Stores the logs of shared partitions in the bucket, so that the WAL can forget them.

    sealed     a sealed segment is uploaded as its files are, once all of it is committed
    due        the WAL has much of a log, or has had it for long: its active segment is sealed if
               it is large, and else uploaded up to the high watermark; the next upload of it
               replaces that
    started    the log start offset is raised in the catalog, and segments below it are garbage

Small segments share an object.

1. An object is uploaded before a row names it. Each attempt has a key of its own.
2. Only committed records are uploaded.
3. Rows whose commit got no answer are committed again before anything else happens.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from functools import partial

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.segment_rows import (
    Leadership,
    SegmentRow,
    StoredLog,
    add_segments,
    note_cleaner_offsets,
    raise_log_start,
)
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.counters.sharing import SharedCounts
from odradek.broker.ids import Partition
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared.bucket import Bucket
from odradek.broker.shared.levels import NotedLevels
from odradek.broker.shared.obstacle import Obstacle
from odradek.broker.shared.packing import Part, pack
from odradek.broker.shared.row_changes import RowChanges
from odradek.broker.shared.tails import (
    SEGMENT_BYTES_MAX,
    StoringLimits,
    Tail,
    adopt_all,
    choose_due,
    grouped,
)
from odradek.storage.errors import BucketFailure, StaleSegments, StorageError
from odradek.storage.log import Log
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.segment import Segment

logger = logging.getLogger(__name__)

Change = Callable[[Connection, Engine], object]

_LOOK_S, _RETRY_S = 1.0, 1.0


class Uploads:
    """Owned by the event loop."""

    def __init__(
        self,
        bucket: Bucket,
        files: CachedFiles,
        line: Line,
        limits: StoringLimits,
        others: Callable[[], int],
        now_ms: Callable[[], int],
        cleaner_offsets: Mapping[tuple[str, int], int],
        counts: SharedCounts,
    ) -> None:
        """`line` is a connection to the catalog; `cleaner_offsets` are those of the logs now.

        `others` returns how many brokers share a takeover of this one's partitions.
        """
        self._bucket, self._files = bucket, files
        self._limits, self._others, self._now_ms, self.counts = limits, others, now_ms, counts
        self._cleaner_offsets = cleaner_offsets
        self.loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "bucket-segments")
        self._session = 0
        self._numbers = itertools.count()
        self._tails: dict[Partition, Tail] = {}
        # Those with committed records that are not stored; the oldest ones first.
        self._unstored: dict[Partition, Tail] = {}
        self._sealed: dict[Partition, Tail] = {}
        # Those with another sealed row, for broker/shared/merging.py.
        self._grown: dict[Partition, Tail] = {}
        self.unstored_bytes = self._entry = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        # Called with a log that is no longer like its segments in the bucket.
        self.on_failed: Callable[[Log, StorageError], None] = lambda log, error: None
        self.obstacle = Obstacle(logger, "store shared logs")
        self.changes = RowChanges(line, self.obstacle)

    @property
    def session(self) -> int:
        """The present session."""
        return self._session

    @property
    def unstored_bytes_max(self) -> int:
        """The bound of `unstored_bytes`."""
        return self._limits.wal_bytes_max(self._others())

    def begin(self, session: int) -> None:
        """Begin a session."""
        self._session, self._numbers = session, itertools.count()
        for tails in (self._tails, self._unstored, self._sealed, self._grown):
            tails.clear()
        self.unstored_bytes = self._entry = 0
        if self._task is None:
            self._task = start_task("store shared logs", self._run())

    def track(self, key: Partition, log: Log, stored: StoredLog, size_bytes: int) -> None:
        """Begin to store a log that was opened, of which the WAL had `size_bytes`."""
        tail = Tail(
            key, log, stored.stored_offset, stored.log_start_offset, stored.cleaner_offset
        )
        for row in stored.segments:
            tail.rows[row.base_offset] = row
            if row.is_open:
                tail.open_base, tail.open_bytes = row.base_offset, row.size_bytes
        self._tails[key] = tail
        self._sealed[key] = self._grown[key] = tail
        if size_bytes:
            self.committed(log, size_bytes, self._entry)

    def log_of(self, key: Partition) -> Log | None:
        """Return the log of a partition that this broker leads."""
        tail = self._tails.get(key)
        return None if tail is None or tail.log.is_closed else tail.log

    def note_levels(self, log: Log) -> NotedLevels | None:
        """Note where the records of a log are that this broker leads, for a thread."""
        tail = self._tails.get((log.topic_id, log.partition))
        if tail is None or tail.log is not log:
            return None
        return NotedLevels(tuple(tail.rows.values()), tail.size_bytes)

    async def release(self, keys: Iterable[Partition]) -> None:
        """Return once nothing of the earlier logs of partitions is being stored.

        They are opened again: rows that changed meanwhile, and entries that the WAL forgets then,
        would be missed.
        """
        held = [tail for key in keys if (tail := self._tails.get(key)) is not None]
        for tail in held:
            self._forget(tail)
        if held:
            async with self._turn:
                pass

    def committed(self, log: Log, size_bytes: int, entry: int) -> None:
        """Note that the WAL has committed more of a log, with the entry of a number."""
        tail = self._tails.get((log.topic_id, log.partition))
        if tail is None or tail.log is not log:
            return
        self._entry = entry
        if not tail.size_bytes:
            tail.since_s, tail.since_entry = self.loop.time(), entry
            self._unstored[tail.key] = tail
        tail.size_bytes += size_bytes
        self.unstored_bytes += size_bytes
        if log.active.size_bytes >= SEGMENT_BYTES_MAX:
            self._sealed[tail.key] = tail
            self._wake.set()

    def rolled(self, log: Log) -> None:
        """Note that a segment was sealed."""
        tail = self._tails.get((log.topic_id, log.partition))
        if tail is not None and tail.log is log:
            self._sealed[tail.key] = tail
            self._wake.set()

    async def store_starts(self, offsets: Mapping[Log, int]) -> list[Log]:
        """Let the catalog have log start offsets; return the logs that are not led any more.

        Raises MetadataError.
        """
        await self._raise_starts()
        tails = ((log, self._tails.get((log.topic_id, log.partition))) for log in offsets)
        return [
            log
            for log, tail in tails
            if tail is None or tail.log is not log or tail.start_offset < offsets[log]
        ]

    async def _raise_starts(self) -> None:
        async with self._turn:
            starts = {
                key: tail.log.log_start_offset
                for key, tail in self._tails.items()
                if tail.log.log_start_offset > tail.start_offset and not tail.log.is_closed
            }
            if starts:
                work = partial(raise_log_start, led=self._led(starts), offsets=starts)
                await self.changes.commit(work)
            for key, offset in starts.items():
                tail = self._tails.get(key)
                if tail is not None:
                    tail.started(offset)
                    self._sealed[key] = tail

    async def pack(self, parts: Sequence[Part]) -> list[SegmentRow]:
        """Upload an object that no row names yet. Raises ObjectStoreError and StorageError.

        Its requests count for the caller's meter (storage/metering.py).
        """
        return await self._pack(parts, self._session, copy_context())

    @asynccontextmanager
    async def turn_of(self, log: Log) -> AsyncIterator[tuple[Tail, Leadership]]:
        """Keep the rows of a log as they are, all of whose sealed segments are stored first.

        Returns the catalog's view of the log, and the leadership. Raises StaleSegments.
        """
        async with self._turn:
            tail = self._tails.get((log.topic_id, log.partition))
            if tail is None or tail.log is not log or log.is_closed:
                raise StaleSegments(f"{log.name}: it is no longer led by this broker")
            led = self._led([tail.key])
            await self._store((), [tail])
            yield tail, led

    def take_grown(self) -> list[Tail]:
        """Return the logs that have more sealed segments in the bucket than at the last call."""
        grown, self._grown = self._grown, {}
        return list(grown.values())

    def look_again(self, tail: Tail) -> None:
        """Let the next take_grown() return a log, if it is still led."""
        if self._tails.get(tail.key) is tail:
            self._grown[tail.key] = tail

    def fail(self, log: Log, error: StorageError) -> None:
        """Have a log built again that could not follow a change in the catalog."""
        self.on_failed(log, BucketFailure(f"{log.name} waits to be opened again: {error}"))

    async def close(self) -> None:
        """Stop; an upload that has begun is finished."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)

    # --- parts -----------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            with_timeout = asyncio.wait_for(self._wake.wait(), _LOOK_S)
            await asyncio.gather(with_timeout, return_exceptions=True)
            self._wake.clear()
            try:
                await self._raise_starts()
                async with self._turn:
                    await self._look()
                    await self._note_cleaned()
            except SessionClosed:  # the next session begins again
                await asyncio.sleep(_RETRY_S)
            except Exception as error:  # The root of a task: the next try may succeed.
                self.obstacle.note(error)
                await asyncio.sleep(_RETRY_S)
            else:
                self.obstacle.end()

    async def _look(self) -> None:
        for tail in [one for one in self._tails.values() if one.log.is_closed]:
            self._forget(tail)
        sealed, self._sealed = self._sealed, {}
        try:
            for tail in sealed.values():
                if tail.log.active.size_bytes >= SEGMENT_BYTES_MAX:
                    tail.log.roll(self._now_ms(), "the size of an object")
            due = choose_due(
                self._unstored.values(),
                self.unstored_bytes,
                self._limits,
                self._others(),
                self.loop.time(),
                self._entry,
            )
            size_bytes = sum(tail.size_bytes for tail in due)
            await self._store(due, sealed.values())
            if size_bytes - sum(tail.size_bytes for tail in due) >= self._limits.round_bytes:
                self._wake.set()  # there may be more
        except BaseException:
            # A session that has begun meanwhile has logs of its own.
            self._sealed |= {
                key: tail for key, tail in sealed.items() if self._tails.get(key) is tail
            }
            raise
        await self._adopt()

    async def _note_cleaned(self) -> None:
        """Let the catalog have the offsets up to which the logs are clean."""
        changed = {}
        for key, tail in self._tails.items():
            offset = self._cleaner_offsets.get((tail.log.topic, tail.log.partition))
            if offset is not None and offset != tail.cleaner_offset and not tail.log.is_closed:
                changed[key] = offset
        if changed:
            note = partial(note_cleaner_offsets, led=self._led(changed), offsets=changed)
            await self.changes.commit(note)
            for key, offset in changed.items():
                if key in self._tails:
                    self._tails[key].cleaner_offset = offset

    def _led(self, keys: Iterable[Partition]) -> Leadership:
        epochs = {key: self._tails[key].log.leader_epoch for key in keys}
        return Leadership(self._session, epochs)

    def _forget(self, tail: Tail) -> None:
        del self._tails[tail.key]
        self._sealed.pop(tail.key, None)
        if self._unstored.pop(tail.key, None) is not None:
            self.unstored_bytes -= tail.size_bytes

    async def _store(self, due: Iterable[Tail], sealed: Collection[Tail] = ()) -> None:
        """Upload the parts of logs that are due, and sealed segments of others."""
        due = dict.fromkeys(due)
        parts: list[Part] = []
        for tail in due:
            if tail.is_due_to_seal:
                tail.log.roll(self._now_ms(), "it is due to be stored")
            parts += tail.parts(with_active=True)
        for tail in sealed:
            if tail not in due:
                parts += tail.parts(with_active=False)
        session = self._session
        for group in grouped(parts):
            await self._upload(group, session)
        for tail in (*due, *sealed):
            if tail.has_sealed and not tail.log.is_closed:  # its end is not committed yet
                self._sealed[tail.key] = tail

    async def _upload(self, parts: Sequence[Part], session: int) -> None:
        # Before the upload, during which the partition may go and come back.
        led = Leadership(session, {part.key: part.log.leader_epoch for part in parts})
        # It would be uploaded all the same, so it counts for no meter.
        rows = await self._pack(parts, session, Context())
        await self.changes.name(rows, partial(add_segments, led=led, rows=rows))
        now_s = self.loop.time()
        for part, row in zip(parts, rows, strict=True):
            tail = self._tails.get(part.key)
            if tail is not None and tail.log is part.log:
                self._note(tail, part.segment, row, now_s)

    async def _pack(
        self, parts: Sequence[Part], session: int, context: Context
    ) -> list[SegmentRow]:
        key = f"segments/{session:010d}/{next(self._numbers):012d}"
        work = partial(pack, self._bucket.store, self._files, key, parts, self._now_ms())
        return await self.loop.run_in_executor(self._thread, context.run, work)

    def _note(self, tail: Tail, segment: Segment, row: SegmentRow, now_s: float) -> None:
        before_bytes = tail.size_bytes
        tail.stored(row, now_s, self._entry)
        if tail.stored_offset >= tail.log.high_watermark:
            tail.size_bytes = 0
        self.unstored_bytes -= before_bytes - tail.size_bytes
        self._unstored.pop(tail.key, None)
        if tail.size_bytes:
            self._unstored[tail.key] = tail
        if not row.is_open:
            tail.kept[row.base_offset] = segment
            self._grown[tail.key] = tail

    async def _adopt(self) -> None:
        """Let the files of stored segments be dropped from the disk."""
        found = [one for tail in self._tails.values() for one in tail.adoptable()]
        if found:
            work = partial(adopt_all, found, self._files, self._bucket.store)
            await self.loop.run_in_executor(self._thread, work)
