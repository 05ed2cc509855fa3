"""Share fetches: acquire the available records, or wait for enough of them until a deadline.

A partition takes part in a fetch if records of it can be acquired and no other fetch is reading
its log. The partitions share the fetch's limit of bytes evenly, and have one limit of records
together. A delayed fetch looks again when one of its logs grows, and when records of one of its
share-partitions have become available.

Kafka's sources: DelayedShareFetch, ShareFetchUtils, PartitionMaxBytesStrategy.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections.abc import Awaitable, Sequence
from dataclasses import field

from odradek.broker.errors import code_of
from odradek.broker.fetch.purgatory import Purgatory
from odradek.broker.shares.acquiring import Acquired, Asked, Span, acquire
from odradek.broker.shares.outcomes import Failure
from odradek.broker.shares.reading import aborted_spans, read_batches
from odradek.broker.shares.serving import Served
from odradek.broker.shares.sessions import TopicPartition
from odradek.dataclass import dataclass
from odradek.storage.errors import NotCached, OffsetOutOfRange, StorageError
from odradek.storage.segment import Slice

_UNLIMITED_BYTES = 2**62


@dataclass(frozen=True, slots=True)
class Wanted:
    """The limits and options of a member's fetch."""

    member_id: str
    is_record_limit: bool
    is_committed: bool
    wait_ms: int
    size_min: int
    size_max: int
    records_max: int
    batch_size: int


@dataclass(slots=True)
class Fetched:
    """The records acquired from one partition, or the failure to read it."""

    failure: Failure | None = None
    records: bytes | bytearray | memoryview = b""
    acquired: Sequence[Acquired] = ()


@dataclass(slots=True)
class _Reading:
    """One partition's part in a fetch."""

    partition: TopicPartition
    served: Served
    offset: int
    size_max: int = 0
    found: Slice | None = None
    data: bytes | bytearray | None = None
    error: StorageError | None = None


@dataclass(slots=True)
class ShareFetch:
    """A share fetch in progress; its share-partitions are loaded."""

    wanted: Wanted
    parts: Sequence[tuple[TopicPartition, Served]]
    purgatory: Purgatory
    fetched: dict[TopicPartition, Fetched] = field(default_factory=dict)
    _tasks: set[Task[None]] = field(default_factory=set)

    def run(self) -> Awaitable[dict[TopicPartition, Fetched]] | dict[TopicPartition, Fetched]:
        """Acquire the available records if they are enough, or wait for more."""
        if not self.parts or self.wanted.records_max == 0 or self.wanted.size_max == 0:
            return self.fetched
        readings = self._acquirable()
        if self._is_enough(readings) or self.wanted.wait_ms <= 0:
            return self._take(readings)
        return self._wait()

    def _acquirable(self) -> list[_Reading]:
        """List the partitions to acquire from, with the bytes that each may take."""
        readings = []
        for partition, served in self.parts:
            share = served.partition
            if served.can_be_read and share is not None and share.can_acquire():
                readings.append(_Reading(partition, served, share.next_fetch_offset()))
        if readings:
            each, rest = divmod(self.wanted.size_max, len(readings))
            for reading in readings:
                reading.size_max = each
            readings[0].size_max += rest
        return readings

    def _is_enough(self, readings: Sequence[_Reading]) -> bool:
        """Return whether there is enough for an answer."""
        if not readings:
            return False
        total = 0
        for reading in readings:
            log = reading.served.log
            try:
                found = log.read(
                    reading.offset,
                    _UNLIMITED_BYTES,
                    at_least_one=True,
                    is_committed=self.wanted.is_committed,
                    may_wait=False,
                )
            except (StorageError, NotCached):
                return True  # The answer will contain the error, or wait for the disk.
            if found is None:
                continue
            if found.base_offset != log.active.base_offset:
                return True  # Nothing more will be appended to an inactive segment.
            total += min(found.size, reading.size_max)
        return total >= self.wanted.size_min

    async def _wait(self) -> dict[TopicPartition, Fetched]:
        woken: Future[None] = asyncio.get_running_loop().create_future()

        def finish() -> None:
            # Acquire at once, so that the next fetch to wake finds only the rest.
            taken = self._take(self._acquirable())
            if isinstance(taken, dict):
                _resolve(woken)
                return
            task = asyncio.ensure_future(self._finish(taken, woken))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        delayed = self.purgatory.park(
            [served.log for _, served in self.parts],
            1,
            self.wanted.wait_ms,
            finish,
            lambda: 0 if self._is_enough(self._acquirable()) else 1,
            is_committed=self.wanted.is_committed,
        )
        for _, served in self.parts:
            served.delayed.add(delayed)
        try:
            await woken
        finally:
            self.purgatory.cancel(delayed)
            for _, served in self.parts:
                served.delayed.discard(delayed)
        return self.fetched

    async def _finish(
        self, taken: Awaitable[dict[TopicPartition, Fetched]], woken: Future[None]
    ) -> None:
        try:
            await taken
        finally:
            _resolve(woken)

    def _take(
        self, readings: Sequence[_Reading]
    ) -> Awaitable[dict[TopicPartition, Fetched]] | dict[TopicPartition, Fetched]:
        """Read and acquire; read in a thread when data is not in memory."""
        if self._read(readings):
            self._acquire(readings)
            return self.fetched
        for reading in readings:
            reading.served.is_reading = True
        return self._take_cold(readings)

    async def _take_cold(self, readings: Sequence[_Reading]) -> dict[TopicPartition, Fetched]:
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._warm, readings)
            self._acquire(readings)
        finally:
            for reading in readings:
                reading.served.is_reading = False
                reading.served.wake()
        return self.fetched

    def _read(self, readings: Sequence[_Reading]) -> bool:
        """Read data in memory, at least one batch; return False when the disk must be read."""
        left, is_first, is_all = self.wanted.size_max, True, True
        for reading in readings:
            reading.found = reading.data = reading.error = None
            try:
                reading.found = reading.served.log.read(
                    reading.offset,
                    min(reading.size_max, left),
                    at_least_one=is_first,
                    is_committed=self.wanted.is_committed,
                    may_wait=False,
                )
                if reading.found is not None:
                    reading.data = reading.found.read_cached()
                    is_all &= reading.data is not None
                    is_first, left = False, max(left - reading.found.size, 0)
            except NotCached:
                is_all = False
            except StorageError as error:
                reading.error = error
        return is_all

    def _warm(self, readings: Sequence[_Reading]) -> None:
        """Read everything in a thread, waiting for the disk."""
        left, is_first = self.wanted.size_max, True
        for reading in readings:
            try:
                reading.found = reading.served.log.read(
                    reading.offset,
                    min(reading.size_max, left),
                    at_least_one=is_first,
                    is_committed=self.wanted.is_committed,
                )
                if reading.found is not None:
                    reading.data = reading.found.read()
                    is_first, left = False, max(left - reading.found.size, 0)
            except StorageError as error:
                reading.error = error

    def _acquire(self, readings: Sequence[_Reading]) -> None:
        """Acquire the records that were read, except those that others have acquired since."""
        left = self.wanted.records_max
        for reading in readings:
            try:
                taken = self._acquire_one(reading, left)
            except OffsetOutOfRange:
                # The log's start has moved: the records before it are gone.
                share = reading.served.partition
                assert share is not None, "only loaded share-partitions are read"
                share.log_begins_at(reading.served.log.log_start_offset)
                self.fetched[reading.partition] = Fetched()
            except StorageError as error:
                code = code_of(error)
                self.fetched[reading.partition] = Fetched(Failure(code, str(error)))
            else:
                left -= taken

    def _acquire_one(self, reading: _Reading, left: int) -> int:
        served, wanted = reading.served, self.wanted
        share = served.partition
        assert share is not None, "only loaded share-partitions are read"
        if reading.error is not None:
            raise reading.error
        fetched = self.fetched[reading.partition] = Fetched()
        if reading.data is None or reading.found is None:
            return 0
        read = read_batches(reading.data)
        aborted: list[Span] = []
        if wanted.is_committed:
            aborted = aborted_spans(served.log, reading.offset, reading.found, read)
        asked = Asked(
            wanted.member_id,
            wanted.is_record_limit,
            wanted.batch_size,
            left,
            reading.offset,
            served.clock_ms(),
        )
        fetched.acquired, count = acquire(share, asked, read.spans, aborted)
        if fetched.acquired:
            fetched.records = read.part(fetched.acquired)
            served.watch()
        return count


def _resolve(future: Future[None]) -> None:
    if not future.done():  # A closed connection has cancelled the future.
        future.set_result(None)
