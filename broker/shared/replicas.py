"""Replicas of shared partitions that other brokers lead, for consumers that are close (KIP-392).

    opened    built from the bucket and the catalog, as a leader's log is, when a consumer asks
    followed  gets the commits of the leaders' WALs, while consumers read it
    retired   nobody reads it, it has another leader, or that has cleaned it or merged segments:
              the next consumer has it opened again

1. A replica has committed records only, so it is read to its end.
2. It has all of them that were committed before the last look at the WAL.
3. It is no part of the broker's log directories: nothing else appends to it, cleans or deletes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.object_rows import Range, segment_ranges
from odradek.broker.catalog.segment_rows import Offsets, StoredLog, offsets_of
from odradek.broker.catalog.wal_reading import Batches, read_entries
from odradek.broker.catalog.wal_rows import EntryRow, entries_from, session_ends
from odradek.broker.counters.sharing import SharedCounts
from odradek.broker.ids import Partition
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.members import Leader
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared.bucket import Bucket
from odradek.broker.shared.building import Builder, append_run
from odradek.broker.shared.obstacle import Obstacle
from odradek.broker.shared.reading_back import ReadBack, read_back
from odradek.broker.shared.referrals import Referrals
from odradek.broker.topics.states import Wanted
from odradek.broker.wal.entries import DamagedEntry, Run
from odradek.dataclass import dataclass
from odradek.storage.cache_directory import CacheDirectory
from odradek.storage.errors import BucketFailure, NotLeader, StorageError
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

# Between two looks at the WAL, and two at the rows of segments.
_LOOK_S, _LOOK_AT_ROWS_S = 0.05, 1.0
_UNUSED_S = 60.0
# A replica that has got so much is opened again, since by then the bucket has it as segments.
_GROWTH_MAX_BYTES = 128 << 20
_REPLICAS_MAX = 500
_ENTRIES_AT_ONCE = 64
# Rows of a partition may change, and the WAL forget its entries, while it is opened.
_TRIES = 5


class Waiting(Protocol):
    """The fetches that wait for records of logs."""

    def has(self, log: Log) -> bool:
        """Return whether a fetch waits for records of a log."""

    def appended(self, log: Log, size_bytes: int) -> None:
        """Count an append."""

    def stable(self, log: Log) -> None:
        """Look again at a log in which a transaction has ended."""

    def rolled(self, log: Log) -> None:
        """Look again at a log with a new segment."""

    def deleted(self, log: Log) -> None:
        """Answer all fetches that wait for a log."""


@dataclass(slots=True, eq=False)
class _Replica:
    """A log, the leader that it follows, and its rows at the opening."""

    log: Log
    leader: Leader
    rows: frozenset[Range]
    cleaner_offset: int | None
    used_s: float
    grown_bytes: int = 0


class ReadReplicas:
    """Owned by the event loop."""

    def __init__(
        self,
        bucket: Bucket,
        home: CacheDirectory,
        builder: Builder,
        line: Line,
        now_ms: Callable[[], int],
        waiting: Waiting,
        counts: SharedCounts,
    ) -> None:
        """`waiting` has the fetches that wait for records."""
        self._bucket, self._home, self._builder = bucket, home, builder
        self._line, self._now_ms, self._counts = line, now_ms, counts
        self._waiting, self._loop = waiting, asyncio.get_running_loop()
        self.referrals = Referrals(self._loop.time)
        self._replicas: dict[Partition, _Replica] = {}
        self._retired: list[Log] = []
        self._opening: dict[Partition, asyncio.Task[None]] = {}
        # The sequences of the entries that are to be looked at next, by session.
        self._positions: dict[int, int] = {}
        self._turn, self._building = asyncio.Lock(), asyncio.Lock()
        self._begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.generation = 0
        """It grows when a log is retired, which its readers may still wait for."""
        self.obstacle = Obstacle(logger, "follow shared logs that consumers read here")

    def __len__(self) -> int:
        """Return the number of replicas."""
        return len(self._replicas)

    def find(self, key: Partition, leader: Leader) -> Log | None:
        """Return the log of a partition with a leader, None unless it has been opened."""
        found = self._replicas.get(key)
        if found is None or not _follows(found, leader):
            return None
        found.used_s = self._loop.time()
        return found.log

    async def prepare(self, wanted: Mapping[Partition, tuple[Wanted, int]]) -> None:
        """Open the partitions that are not open, and look at the WAL for the given offsets.

        Those that cannot be opened stay closed. `wanted` names the offset that a reader has
        reached in each.
        """
        self._begun.set()
        if self._task is None:
            self._task = start_task("follow shared logs", self._run())
        missing, is_ahead = [], False
        for key, (one, offset) in wanted.items():
            log = self.find(key, _leader_of(one))
            if log is None:
                missing.append(one)
            else:
                is_ahead |= offset > log.log_end_offset
        if is_ahead:
            await self._try(self._follow())
        if missing:
            await self._open(missing)

    def owns(self, log: Log) -> bool:
        """Return whether a log is, or was, a replica."""
        return log.directory.parent == self._home.path

    def retire(self, log: Log, why: str) -> None:
        """Use a log no more; the fetches that wait for its records are answered."""
        key = log.topic_id, log.partition
        found = self._replicas.get(key)
        if found is None or found.log is not log:
            return
        del self._replicas[key]
        self._retired.append(log)
        self.generation += 1
        logger.info("retired replica=%s because=%r", log.name, why)
        log.failure = NotLeader(f"{log.name} is to be opened again: {why}")
        self._waiting.deleted(log)

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        async with self._building:
            await asyncio.to_thread(self._home.close)

    # --- opening ---------------------------------------------------------------------------------

    async def _open(self, wanted: Sequence[Wanted]) -> None:
        """Open partitions, or wait until those that are being opened are.

        They are opened though the client goes meanwhile: threads that are at it would write into
        the directories beside those of the next client.
        """
        own = [one for one in wanted if one.key not in self._opening]
        if own:
            building = start_task("open replicas", self._build_all(own))
            self._opening |= dict.fromkeys([one.key for one in own], building)
        await asyncio.wait({self._opening[one.key] for one in wanted})

    async def _build_all(self, wanted: Sequence[Wanted]) -> None:
        try:
            await self._try(self._build(wanted))
        finally:
            for one in wanted:
                del self._opening[one.key]

    async def _build(self, wanted: Sequence[Wanted]) -> None:
        async with self._building:
            for one in wanted:
                stale = self._replicas.get(one.key)
                if stale is not None:
                    self.retire(stale.log, "it has another leader")
            for other in sorted(self._replicas.values(), key=lambda one: one.used_s):
                if len(self._replicas) + len(wanted) <= _REPLICAS_MAX:
                    break
                self.retire(other.log, "there are many others")
            for _ in range(_TRIES):
                before = await self._line.read(session_ends)
                now_ms = self._now_ms()
                found = await read_back(self._bucket, self._line, self._builder, wanted, now_ms)
                after = await self._line.read(partial(offsets_of, partitions=list(found.stored)))
                wanted = self._begin(wanted, found, before, after)
                if not wanted:
                    return
            failed = found.logs[wanted[0].key]
            raise failed if isinstance(failed, BucketFailure) else BucketFailure(
                f"the segments of {wanted[0].name} change too often to open it"
            )

    def _begin(
        self,
        wanted: Sequence[Wanted],
        found: ReadBack,
        ends: Mapping[int, int],
        after: Mapping[Partition, Offsets],
    ) -> list[Wanted]:
        """Begin to follow logs; return the partitions that have to be read again."""
        again = []
        for one in wanted:
            key, log = one.key, found.logs[one.key]
            stored = found.stored.get(key)
            if stored is None or key not in after:
                continue  # its topic was deleted
            if after[key].stored_offset != stored.stored_offset or not isinstance(log, Log):
                again.append(one)
                continue
            log.on_roll = self._waiting.rolled
            self._replicas[key] = _Replica(
                log,
                _leader_of(one),
                _sealed(stored),
                stored.cleaner_offset,
                self._loop.time(),
            )
            self._counts.opened_replicas += 1
        for session, end in ends.items():
            self._positions[session] = min(self._positions.get(session, end), end)
        return again

    # --- following -------------------------------------------------------------------------------

    async def _run(self) -> None:
        looked_s = self._loop.time()
        while True:
            await self._begun.wait()
            await asyncio.sleep(_LOOK_S)
            await self._try(self._follow())
            if self._loop.time() - looked_s >= _LOOK_AT_ROWS_S:
                looked_s = self._loop.time()
                await self._try(self._look_at_rows())
                await self._try(self._remove_files())
            if not self._replicas and not self._opening:
                self._begun.clear()
                self._positions.clear()
                self.obstacle.end()  # nobody asks any more

    async def _follow(self) -> None:
        """Append all that the leaders have committed."""
        async with self._turn:
            while True:
                ends, rows = await self._line.read(partial(_news, positions=self._positions))
                self._check_gaps(ends, rows)
                if not rows:
                    return
                wanted = {key: one.log.log_end_offset for key, one in self._replicas.items()}
                async for some in read_entries(
                    self._line, self._bucket.store, self._bucket.reads, rows, wanted
                ):
                    for run, batches in some:
                        self._append(run, batches)
                        await asyncio.sleep(0)  # others take turns
                for row in rows:
                    self._positions[row.session] = row.sequence + 1

    def _check_gaps(self, ends: Mapping[int, int], rows: Sequence[EntryRow]) -> None:
        """Open all logs again if the WAL has forgotten an entry that was not looked at."""
        for session, end in ends.items():
            begin = self._positions.get(session, 0)
            count = max(min(end - begin, _ENTRIES_AT_ONCE), 0)
            found = [row.sequence for row in rows if row.session == session]
            if found[:count] != list(range(begin, begin + count)):
                self._positions[session] = end
                for one in list(self._replicas.values()):
                    self.retire(one.log, "the WAL has forgotten a part")

    def _append(self, run: Run, batches: Batches) -> None:
        found = self._replicas.get(run.partition)
        if found is None:
            return
        log = found.log
        end_offset, stable_offset = log.log_end_offset, log.last_stable_offset
        try:
            if isinstance(batches, DamagedEntry):
                raise batches
            if run.base_offset > end_offset:
                raise BucketFailure(f"records from offset {end_offset} on are missing")
            append_run(log, batches, self._now_ms())
        except (StorageError, DamagedEntry) as error:
            self.retire(log, str(error))
            return
        if log.log_end_offset > end_offset:
            found.grown_bytes += run.size_bytes
            self._waiting.appended(log, run.size_bytes)
            if log.last_stable_offset > stable_offset:
                self._waiting.stable(log)

    async def _look_at_rows(self) -> None:
        """Follow log start offsets; retire logs that are not used or have other segments."""
        keys = list(self._replicas)
        offsets, ranges = await self._line.read(
            lambda connection: (offsets_of(connection, keys), segment_ranges(connection, keys))
        )
        for key in keys:
            found = self._replicas.get(key)
            if found is not None and (why := self._reason(found, offsets.get(key), ranges[key])):
                self.retire(found.log, why)

    def _reason(
        self, found: _Replica, offsets: Offsets | None, ranges: Collection[Range]
    ) -> str | None:
        """Return the reason to retire a replica, None if it stays."""
        if offsets is None:
            return "its topic was deleted"
        start = offsets.log_start_offset
        needed = {one for one in found.rows if one.next_offset > start}
        if not needed <= set(ranges) or offsets.cleaner_offset != found.cleaner_offset:
            return "its leader has exchanged segments"
        if start <= found.log.high_watermark:
            found.log.advance_start_offset(start)
        if found.grown_bytes > _GROWTH_MAX_BYTES:
            return "it has grown much, and the bucket has that by now"
        is_used = self._waiting.has(found.log) or self._loop.time() - found.used_s <= _UNUSED_S
        return None if is_used else "nobody reads it"

    async def _remove_files(self) -> None:
        async with self._building:
            retired, self._retired = self._retired, []
            # Others have taken their directories over.
            gone = [one for one in retired if (one.topic_id, one.partition) not in self._replicas]
            await asyncio.to_thread(self._home.discard, gone)

    async def _try(self, work: Awaitable[None]) -> None:
        """Do work; note the error that keeps it from being done."""
        try:
            await work
        except Exception as error:  # The root of a task, and of requests: the next try may do.
            self.obstacle.note(error)
        else:
            self.obstacle.end()


def _news(
    connection: Connection, positions: Mapping[int, int]
) -> tuple[dict[int, int], list[EntryRow]]:
    """Return the ends of the open sessions, and their first entries from positions on."""
    ends = session_ends(connection)
    behind = {
        session: position
        for session, end in ends.items()
        if (position := positions.get(session, 0)) < end
    }
    return ends, entries_from(connection, behind, _ENTRIES_AT_ONCE)


def _leader_of(wanted: Wanted) -> Leader:
    return wanted.record.leaders[wanted.number]


def _follows(replica: _Replica, leader: Leader) -> bool:
    known = replica.leader
    return (known.node_id, known.epoch) == (leader.node_id, leader.epoch)


def _sealed(stored: StoredLog) -> frozenset[Range]:
    return frozenset(
        Range(one.base_offset, one.next_offset, one.key)
        for one in stored.segments
        if not one.is_open
    )
