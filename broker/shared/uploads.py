"""Stores the logs of shared partitions in the bucket, so that the WAL can forget them.

    sealed     a sealed segment is uploaded as its files are, once all of it is committed
    due        the WAL has much of a log, or has had it for long: its active segment is sealed if it
               is large, and else uploaded up to the high watermark, which the next upload of it
               replaces
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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.segment_rows import (
    NotLed,
    SegmentRow,
    StoredLog,
    add_segments,
    raise_log_start,
)
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.errors import MetadataError
from odradek.broker.ids import Partition
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared.bucket import Bucket
from odradek.broker.shared.packing import Part, pack, remote_log
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.objects.store import ObjectStoreError

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LOOK_S, _RETRY_S = 1.0, 1.0
# A segment of this size has an object of its own; smaller ones share one of about this size.
_PACK_BYTES = 16 << 20
# A segment that is larger is sealed. It is in memory while it is uploaded.
_SEGMENT_BYTES_MAX = 64 << 20
# An active segment is uploaded again as a whole. It is sealed if it has grown by less than a
# quarter since.
_GROWTH_MIN = 4


@dataclass(frozen=True, slots=True)
class StoringLimits:
    """The bytes that only the WAL has, and the time for which it does, before logs are stored."""

    wal_bytes: int = 256 << 20
    wal_age_s: float = 600.0


@dataclass(slots=True, eq=False)
class Tail:
    """The end of a shared log that only the WAL has; the catalog's view of the log."""

    key: Partition
    log: Log
    stored_offset: int
    start_offset: int
    # The upload of a segment that was not sealed then: its base offset and size.
    open_base: int = -1
    open_bytes: int = 0
    size_bytes: int = 0
    since_s: float = 0.0

    @property
    def is_due_to_seal(self) -> bool:
        """Whether the active segment is to be sealed rather than uploaded as it is."""
        size = self.log.active.size_bytes
        has_grown_little = (size - self.open_bytes) * _GROWTH_MIN < self.open_bytes
        is_again = self.open_base == self.log.active.base_offset
        return size >= _PACK_BYTES or (is_again and has_grown_little)

    @property
    def has_sealed(self) -> bool:
        """Whether a sealed segment is not stored."""
        return self.log.active.base_offset > self.stored_offset

    def parts(self, *, with_active: bool) -> Iterator[Part]:
        """Iterate over the parts of segments that are to be uploaded, all of them committed."""
        log, end = self.log, self.log.high_watermark
        for segment, following in itertools.pairwise(log.segments):
            next_offset = following.base_offset
            is_wanted = next_offset > self.stored_offset or segment.base_offset == self.open_base
            if is_wanted and next_offset <= end:
                yield Part(self.key, log, segment, next_offset, log.epochs, is_open=False)
        active = log.active
        if with_active and end > max(self.stored_offset, active.base_offset):
            yield Part(self.key, log, active, end, log.epochs, is_open=True)

    def stored(self, row: SegmentRow, now_s: float) -> None:
        """Note that the catalog has a row."""
        before = self.open_bytes if row.base_offset == self.open_base else 0
        self.size_bytes = max(self.size_bytes - (row.size_bytes - before), 0)
        self.stored_offset = max(self.stored_offset, row.next_offset)
        self.since_s = now_s
        if row.is_open:
            self.open_base, self.open_bytes = row.base_offset, row.size_bytes
        elif row.base_offset == self.open_base:
            self.open_base, self.open_bytes = -1, 0


class Uploads:
    """Owned by the event loop."""

    def __init__(
        self,
        bucket: Bucket,
        files: CachedFiles,
        line: Line,
        limits: StoringLimits,
        now_ms: Callable[[], int],
    ) -> None:
        """`line` is a connection to the catalog."""
        self._bucket, self._files, self._line = bucket, files, line
        self._limits, self._now_ms = limits, now_ms
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "bucket-segments")
        self._session = 0
        self._numbers = itertools.count()
        self._tails: dict[Partition, Tail] = {}
        # Those with committed records that are not stored; the oldest ones first.
        self._unstored: dict[Partition, Tail] = {}
        self._sealed: dict[Partition, Tail] = {}
        self.unstored_bytes = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        # The reason why nothing can be stored, "" while it can.
        self.problem = ""

    def begin(self, session: int) -> None:
        """Begin a session."""
        self._session, self._numbers = session, itertools.count()
        for tails in (self._tails, self._unstored, self._sealed):
            tails.clear()
        self.unstored_bytes = 0
        if self._task is None:
            self._task = start_task("store shared logs", self._run())

    def track(self, key: Partition, log: Log, stored: StoredLog, size_bytes: int) -> None:
        """Begin to store a log that was opened, of which the WAL had `size_bytes`."""
        tail = Tail(key, log, stored.stored_offset, stored.log_start_offset)
        for row in stored.segments:
            if row.is_open:
                tail.open_base, tail.open_bytes = row.base_offset, row.size_bytes
        self._tails[key] = tail
        self._sealed[key] = tail
        if size_bytes:
            self.committed(log, size_bytes)

    def committed(self, log: Log, size_bytes: int) -> None:
        """Note that the WAL has committed more of a log."""
        tail = self._tails.get((log.topic_id, log.partition))
        if tail is None or tail.log is not log:
            return
        if not tail.size_bytes:
            tail.since_s = self._loop.time()
            self._unstored[tail.key] = tail
        tail.size_bytes += size_bytes
        self.unstored_bytes += size_bytes
        if log.active.size_bytes >= _SEGMENT_BYTES_MAX:
            self._sealed[tail.key] = tail
            self._wake.set()

    def rolled(self, log: Log) -> None:
        """Note that a segment was sealed."""
        tail = self._tails.get((log.topic_id, log.partition))
        if tail is not None and tail.log is log:
            self._sealed[tail.key] = tail
            self._wake.set()

    async def raise_starts(self) -> None:
        """Raise the log start offsets in the catalog to those of the logs. Raises MetadataError."""
        async with self._turn:
            starts = {
                key: tail.log.log_start_offset
                for key, tail in self._tails.items()
                if tail.log.log_start_offset > tail.start_offset and not tail.log.is_closed
            }
            if starts:
                await self._commit(partial(_raise, starts=starts, session=self._session))
            for key, offset in starts.items():
                tail = self._tails.get(key)
                if tail is not None:
                    tail.start_offset = max(tail.start_offset, offset)

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
                await self.raise_starts()
                async with self._turn:
                    await self._look()
            except SessionClosed:  # the next session begins again
                await asyncio.sleep(_RETRY_S)
            except (MetadataError, ObjectStoreError, StorageError) as error:
                if str(error) != self.problem:
                    logger.error("could not store shared logs, tries again: %s", error)
                self.problem = str(error)
                await asyncio.sleep(_RETRY_S)
            else:
                self.problem = ""

    async def _look(self) -> None:
        for tail in [one for one in self._tails.values() if one.log.is_closed]:
            self._forget(tail)
        sealed, self._sealed = self._sealed, {}
        for tail in sealed.values():
            if tail.log.active.size_bytes >= _SEGMENT_BYTES_MAX:
                tail.log.roll(self._now_ms(), "the size of an object")
        await self._store(self._due(), sealed.values())

    def _forget(self, tail: Tail) -> None:
        del self._tails[tail.key]
        self._sealed.pop(tail.key, None)
        if self._unstored.pop(tail.key, None) is not None:
            self.unstored_bytes -= tail.size_bytes

    def _due(self) -> list[Tail]:
        """Return the logs of which the WAL has much, or has had records for long."""
        now_s, limits = self._loop.time(), self._limits
        # Half of the bytes, so that each round stores large parts.
        excess = self.unstored_bytes - limits.wal_bytes // 2
        if self.unstored_bytes < limits.wal_bytes:
            excess = 0
        due = []
        for tail in self._unstored.values():
            if excess <= 0 and now_s - tail.since_s < limits.wal_age_s:
                break
            excess -= tail.size_bytes
            due.append(tail)
        return due

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
        for group in _grouped(parts):
            await self._upload(group, session)
        for tail in (*due, *sealed):
            if tail.has_sealed and not tail.log.is_closed:  # its end is not committed yet
                self._sealed[tail.key] = tail

    async def _upload(self, parts: Sequence[Part], session: int) -> None:
        key = f"segments/{session:010d}/{next(self._numbers):012d}"
        now_ms = self._now_ms()
        rows = await self._loop.run_in_executor(
            self._thread, pack, self._bucket.store, self._files, key, parts, now_ms
        )
        await self._commit(partial(_add, rows=rows, session=session))
        now_s = self._loop.time()
        for part, row in zip(parts, rows, strict=True):
            tail = self._tails.get(part.key)
            if tail is not None and tail.log is part.log:
                self._note(tail, row, now_s)
        adopted = [(part, row) for part, row in zip(parts, rows, strict=True) if not row.is_open]
        await self._loop.run_in_executor(self._thread, self._adopt, adopted)

    def _note(self, tail: Tail, row: SegmentRow, now_s: float) -> None:
        before = tail.size_bytes
        tail.stored(row, now_s)
        if tail.stored_offset >= tail.log.high_watermark:
            tail.size_bytes = 0
        self.unstored_bytes -= before - tail.size_bytes
        self._unstored.pop(tail.key, None)
        if tail.size_bytes:
            self._unstored[tail.key] = tail

    def _adopt(self, stored: Sequence[tuple[Part, SegmentRow]]) -> None:
        """Let the files of stored segments be dropped from the disk; runs in a thread."""
        for part, row in stored:
            segment = part.segment
            try:
                self._files.adopt(segment.log.path, remote_log(self._bucket.store, row))
            except StorageError as error:
                if not part.log.is_closed and segment in part.log.segments:
                    logger.error("kept a stored segment on the disk: %s", error)

    async def _commit(self, work: Callable[[Connection, Engine], T]) -> T:
        """Change the catalog; repeat that until there is an answer."""
        while True:
            try:
                return await self._line.touch(lambda to: work(to, self._line.engine))
            except (SessionClosed, NotLed):
                raise
            except MetadataError as error:
                if str(error) != self.problem:
                    logger.error("could not store shared logs, tries again: %s", error)
                self.problem = str(error)
                await asyncio.sleep(_RETRY_S)


def _add(
    connection: Connection, engine: Engine, rows: Sequence[SegmentRow], session: int
) -> None:
    add_segments(connection, engine, session, rows)


def _raise(
    connection: Connection, engine: Engine, starts: Mapping[Partition, int], session: int
) -> None:
    raise_log_start(connection, engine, session, starts)


def _grouped(parts: Iterable[Part]) -> Iterator[Sequence[Part]]:
    """Yield parts that share an object."""
    group: list[Part] = []
    size_bytes = 0
    for part in parts:
        size = part.segment.size_bytes
        if size >= _PACK_BYTES:
            yield [part]
            continue
        group.append(part)
        size_bytes += size
        if size_bytes >= _PACK_BYTES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group


