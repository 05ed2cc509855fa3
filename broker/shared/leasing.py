"""Leaves the cleaning of shared partitions to jobs that take leases: the part of their leaders.

See broker/catalog/cleaning_leases.py for the course of a lease. While it lasts no cleaner of this
broker works on the log. Producers and consumers go on, and so does retention: a proposal that
names a row which is gone meanwhile is refused, as one of the broker's own cleaner.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from functools import partial

from odradek.broker.catalog.cleaning_leases import (
    Lease,
    all_leases,
    answer,
    end_silent,
    grant,
    read_proposal,
)
from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.garbage_rows import note_garbage
from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.segment_rows import (
    Leadership,
    NotLed,
    SegmentRow,
    exchange_segments,
    note_cleaner_offsets,
)
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.ids import Partition
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared.bucket import Bucket
from odradek.broker.shared.exchanging import stored_rows
from odradek.broker.shared.leased_terms import Proposal, Replacement, Terms
from odradek.broker.shared.obstacle import Obstacle
from odradek.broker.shared.packing import add_remotes
from odradek.broker.shared.tails import Tail
from odradek.broker.shared.uploads import Uploads
from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.job import CleanerSettings, CleaningJob, make_job
from odradek.cleaner.rules.policy import Bound, Reason
from odradek.cleaner.runtime.asked import could_seal, why_nothing
from odradek.cleaner.runtime.pool import CleanerPool
from odradek.cleaner.runtime.progress import (
    Candidate,
    CleanerOffsets,
    Running,
    assess,
    note_log,
    range_of,
)
from odradek.config.broker import BrokerConfig
from odradek.dataclass import dataclass
from odradek.storage.errors import StaleSegments, StorageError
from odradek.storage.exchange import still_present
from odradek.storage.log import Log
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.objects.store import ObjectStoreError
from odradek.storage.segment import CLEANED, Segment, file_name
from odradek.storage.transactions import AbortedTransaction

logger = logging.getLogger(__name__)

_LOOK_S = 1.0
# A job raises its beat each few seconds, unless its machine or the catalog is very busy.
SILENCE_S = 30.0


class Refused(Exception):
    """A lease is not granted, or a proposal not accepted; the text is the answer."""


@dataclass(frozen=True, slots=True)
class _Granted:
    """A lease that this broker has granted as a leader, and the cleaning that it is for."""

    job: str
    led: Leadership
    log: Log
    cleaning: CleaningJob
    prefix: str


class Leasing:
    """Owned by the event loop."""

    def __init__(
        self,
        uploads: Uploads,
        bucket: Bucket,
        files: CachedFiles,
        line: Line,
        offsets: CleanerOffsets,
        cleaner: CleanerPool,
        config: Callable[[], BrokerConfig],
        now_ms: Callable[[], int],
    ) -> None:
        """`offsets` are those up to which the logs of shared partitions are clean."""
        self._uploads, self._bucket, self._files, self._line = uploads, bucket, files, line
        self._offsets, self._cleaner, self._config = offsets, cleaner, config
        self._now_ms, self._loop = now_ms, asyncio.get_running_loop()
        self._granted: dict[Partition, _Granted] = {}
        self._numbers = itertools.count()
        # When each beat was seen first.
        self._beats: dict[tuple[Partition, str, int], float] = {}
        self._looked_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self.obstacle = Obstacle(logger, "look for jobs that clean")

    def __len__(self) -> int:
        return len(self._granted)

    def start(self) -> None:
        """Begin to look now and then."""
        self._task = start_task("look for jobs that clean", self._run())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.look()
            except Exception as error:  # The root of a task: the next try may succeed.
                self.obstacle.note(error)
            else:
                self.obstacle.end()

    async def look(self) -> None:
        """Grant leases, accept proposals, and end leases that are over. Raises MetadataError."""
        leases = await self._line.read(all_leases)
        led = [(one, log) for one in leases if (log := self._uploads.log_of(one.partition))]
        present = {(one.partition, one.job, one.session) for one in leases if not one.has_answer}
        for key, granted in list(self._granted.items()):
            if (key, granted.job, granted.led.session) not in present:
                await self._end(key, granted)
        silent = self._silent([one for one, _ in led])
        for lease, log in led:
            if lease in silent:
                if await self._line.touch(partial(end_silent, lease=lease)):
                    logger.warning("ended a lease: job=%s is silent log=%s", lease.job, log.name)
            elif not lease.has_answer:
                await self._serve(lease, log)

    def _silent(self, leases: Sequence[Lease]) -> set[Lease]:
        now_s = self._loop.time()
        if now_s - self._looked_s > SILENCE_S / 2:  # nor could the jobs reach the catalog, perhaps
            self._beats.clear()
        self._looked_s = now_s
        keys = {(one.partition, one.job, one.beat): one for one in leases}
        self._beats = {key: self._beats.get(key, now_s) for key in keys}
        return {keys[key] for key, since_s in self._beats.items() if now_s - since_s >= SILENCE_S}

    async def _serve(self, lease: Lease, log: Log) -> None:
        granted = self._granted.get(lease.partition)
        if granted is not None and granted.log is not log:  # it was built again
            await self._end(lease.partition, granted)
            granted = None
        try:
            if granted is None:
                await self._grant(lease, log)
            elif lease.has_proposal:
                await self._accept(lease, granted)
        except (SessionClosed, NotLed) as error:  # the next leader serves it
            logger.info("did not serve the lease of job=%s: %s", lease.job, error)
        except (Refused, StorageError, ObjectStoreError) as error:
            refusal = str(error)
            await self._uploads.changes.commit(lambda to, _: _answer(to, lease, refusal))

    # --- granting -------------------------------------------------------------------------

    async def _grant(self, lease: Lease, log: Log) -> None:
        if not log.config.compact:
            raise Refused("cleanup.policy of its topic lacks compact")
        await self._cleaner.lease(log.topic, log.partition, lease.job)
        try:
            granted, terms = await self._make_terms(lease, log)
            await self._line.touch(
                partial(
                    grant,
                    engine=self._line.engine,
                    led=granted.led,
                    lease=lease,
                    terms=terms.encode(),
                )
            )
        except BaseException:
            self._cleaner.end_lease(log.topic, log.partition)
            raise
        self._granted[lease.partition] = granted
        logger.info("leased log=%s to job=%s", log.name, lease.job)

    async def _make_terms(self, lease: Lease, log: Log) -> tuple[_Granted, Terms]:
        now_ms = self._now_ms()
        candidate = await self._assess(log, now_ms)
        at_active = candidate is None or candidate.dirty.bound is Bound.ACTIVE_SEGMENT
        if at_active and could_seal(log, now_ms):
            log.roll(now_ms, "a job cleans it")
            candidate = await self._assess(log, now_ms)
        if candidate is None or not candidate.has_work(now_ms):
            dirty = None if candidate is None else candidate.dirty
            raise Refused(f"nothing to clean: {why_nothing(log, dirty)}")
        settings = CleanerSettings.of(self._config())
        cleaning = make_job(
            log, range_of(candidate, Reason.ASKED), settings, now_ms, Reason.ASKED
        )
        async with self._uploads.turn_of(log) as (tail, led):
            stored_rows(tail, cleaning.segments)
        aborted = await self._loop.run_in_executor(
            self._bucket.reads, _aborted_behind, cleaning, log.log_start_offset
        )
        prefix = f"cleaned/{led.session:010d}/{next(self._numbers):06d}/"
        granted = _Granted(lease.job, led, log, cleaning, prefix)
        return granted, Terms.of(cleaning, log.log_start_offset, aborted, prefix)

    async def _assess(self, log: Log, now_ms: int) -> Candidate | None:
        horizons = self._cleaner.scheduler.progress.horizons
        noted = note_log(log, self._offsets, now_ms, horizons)
        if noted is None:
            return None
        return await self._loop.run_in_executor(self._bucket.reads, assess, noted, now_ms)

    # --- accepting ------------------------------------------------------------------------

    async def _accept(self, lease: Lease, granted: _Granted) -> None:
        data = await self._line.read(partial(read_proposal, lease=lease))
        if data is None:
            return
        try:
            proposal = Proposal.decode(data, lease.partition)
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(f"the proposal is not understood: {error!r}") from error
        if not granted.log.config.compact:
            raise Refused("cleanup.policy of its topic lacks compact now")
        wanted, end = await self._exchange(lease, granted, proposal)
        running = Running(granted.log, granted.cleaning, self._offsets)
        self._cleaner.scheduler.adopt(running, _result(granted.cleaning, proposal, end))
        await self._end(lease.partition, granted, {one.new.key for one in wanted})

    async def _exchange(
        self, lease: Lease, granted: _Granted, proposal: Proposal
    ) -> tuple[list[Replacement], int]:
        """Exchange segments in the catalog and in the log.

        Returns the replacements that were made, and the next first dirty offset.
        """
        log = granted.log
        async with self._uploads.turn_of(log) as (tail, led):
            wanted, end = _remaining(log, granted.cleaning, proposal)
            pairs = [(_segments_of(log, tail, one), one.new) for one in wanted]
            if led != granted.led:
                raise Refused("the session of its leader has ended")
            if any(not row.key.startswith(granted.prefix) for _, row in pairs):
                raise Refused(f"objects of the job have keys that begin with {granted.prefix}")
            old = [name for one in wanted for name in one.old]
            new = [row for _, row in pairs]

            def change(connection: Connection, engine: Engine) -> None:
                key = lease.partition
                is_first = not new or exchange_segments(connection, engine, led, key, old, new)
                note_cleaner_offsets(connection, engine, led, {key: end})
                if is_first:  # else the job has its answer, and may have given the lease back
                    _answer(connection, lease, "")

            await self._uploads.changes.commit(change)
            self._uploads.counts.exchanged_segments += len(old)
            tail.exchanged([tail.rows[base] for base, _ in old], new)
            tail.cleaner_offset = end
        try:
            for segments, row in pairs:
                # Retention may have deleted some, or all of them, while the catalog answered.
                present = still_present(segments, log.segments)
                if present:
                    log.replace_segments(present, [self._segment(log, row)], self._now_ms())
                await asyncio.sleep(0)  # a step takes a millisecond
        except StorageError as error:  # the catalog has them all the same
            self._uploads.fail(log, error)
        return wanted, end

    def _segment(self, log: Log, row: SegmentRow) -> Segment:
        """Return a segment of the bucket that is to replace others of a log."""
        path = log.directory / file_name(row.base_offset)
        add_remotes(self._files, self._bucket.store, row, path, CLEANED)
        return Segment(self._files, log.directory, row.base_offset, suffix=CLEANED)

    # --- ending ---------------------------------------------------------------------------

    async def _end(
        self, key: Partition, granted: _Granted, kept: Collection[str] = ()
    ) -> None:
        """Clean a partition here again, and let objects be deleted that no row names."""
        del self._granted[key]
        log = granted.log
        self._cleaner.end_lease(log.topic, log.partition)
        there = await self._loop.run_in_executor(
            self._bucket.reads, lambda: list(self._bucket.store.list_objects(granted.prefix))
        )
        sizes = {one.key: one.size_bytes for one in there if one.key not in kept}
        engine = self._line.engine
        await self._line.touch(lambda to: note_garbage(to, engine, sizes))


def _answer(connection: Connection, lease: Lease, text: str) -> None:
    if not answer(connection, lease, text) and not text:
        raise StaleSegments("the job has given its lease back")


def _remaining(
    log: Log, job: CleaningJob, proposal: Proposal
) -> tuple[list[Replacement], int]:
    """Return the replacements whose segments have not been deleted since, and the end offset.

    If only some segments of one are there, they are as dirty as before, with all that follow.
    """
    first, end = log.segments[0].base_offset, job.dirty.first_uncleanable_offset
    found = []
    for one in proposal.replacements:
        if one.old[0][0] >= first:
            found.append(one)
        elif one.new.next_offset > first:
            end = first
    return found, end


def _segments_of(log: Log, tail: Tail, replacement: Replacement) -> list[Segment]:
    """Return the segments to replace. Raises StaleSegments unless they are the log's."""
    bases = [base for base, _ in replacement.old]
    segments = [one for one in log.segments if bases[0] <= one.base_offset <= bases[-1]]
    rows = stored_rows(tail, segments)
    if [(row.base_offset, row.key) for row in rows] != list(replacement.old):
        raise StaleSegments(f"{log.name}: segments changed while they were cleaned")
    if (bases[0], rows[-1].next_offset) != (
        replacement.new.base_offset, replacement.new.next_offset,
    ):  # fmt: skip
        raise StaleSegments(f"{log.name}: a new segment has other offsets than those it replaces")
    return segments


def _aborted_behind(job: CleaningJob, start_offset: int) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions of a range whose markers are in later segments."""
    end_offset = job.dirty.first_uncleanable_offset
    return tuple(
        one
        for segment in job.later_segments
        for one in segment.transactions.between(start_offset, end_offset)[0]
    )


def _result(job: CleaningJob, proposal: Proposal, end_offset: int) -> CleanResult:
    counters = proposal.counters
    return CleanResult(
        topic=job.topic,
        partition=job.partition,
        reason=job.reason,
        first_dirty_offset=job.dirty.first_dirty_offset,
        end_offset=end_offset,
        first_uncleanable_offset=job.dirty.first_uncleanable_offset,
        started_ms=job.now_ms,
        index_ms=proposal.index_ms,
        total_ms=proposal.total_ms,
        map_keys=0,
        map_bytes=0,
        map_utilization=0.0,
        cleanable_ratio=job.dirty.cleanable_ratio,
        overdue_ms=job.dirty.overdue_ms,
        next_horizon_ms=proposal.next_horizon_ms,
        is_verified=False,
        is_alone=False,
        **asdict(counters),
    )
