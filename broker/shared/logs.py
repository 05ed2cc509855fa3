"""The logs of the shared partitions that this broker leads, and their WAL.

    open      a log is built from its committed batches, in the bucket and the catalog
    appended  batches go into the log and into the WAL
    committed readers see them, and producers are answered
    lost      the session is closed: other brokers lead the partitions, and these logs have ended

1. A log is built when nothing of its partition waits for a commit, here or elsewhere: other
   brokers' sessions are closed, or have handed the partition over.
2. A log belongs to one session; with the session it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.wal_backend import SessionWal
from odradek.broker.catalog.wal_reading import read_wal
from odradek.broker.errors import MetadataError
from odradek.broker.ids import Partition as Key
from odradek.broker.loop.tasks import start_task
from odradek.broker.shared.bucket import Bucket
from odradek.broker.topics.states import Partition, Wanted, as_offline
from odradek.broker.wal.entries import DamagedEntry, Run
from odradek.broker.wal.pacing import WalLimits
from odradek.broker.wal.wal import Wal, WalLost
from odradek.storage.cache_directory import CacheDirectory
from odradek.storage.copying import append_copied
from odradek.storage.errors import BucketFailure, StorageError
from odradek.storage.log import Log
from odradek.storage.objects.store import ObjectStoreError
from odradek.storage.readable_log import LogIdentity
from odradek.storage.scan import whole_batches
from odradek.storage.uncommitted import Uncommitted

logger = logging.getLogger(__name__)

# The time for batches that wait to be committed at a stop.
_DRAIN_S = 5.0


class SharedLogs:
    """Owned by the event loop."""

    def __init__(
        self,
        bucket: Bucket,
        limits: WalLimits,
        home: CacheDirectory,
        open_line: Callable[[str], Line],
        now_ms: Callable[[], int],
    ) -> None:
        """`open_line` opens a connection to the catalog."""
        self._bucket, self._limits, self.home = bucket, limits, home
        self._now_ms = now_ms
        self._commits, self._reads = open_line("wal"), open_line("shared")
        self._loop = asyncio.get_running_loop()
        self._wal: Wal | None = None
        self._logs: dict[Key, Log] = {}
        self._discarding: asyncio.Future[None] = self._loop.create_future()
        self._discarding.set_result(None)
        # Called with a log of which readers may read more, and the bytes that they may.
        self.on_committed: Callable[[Log, int], None] = lambda log, size_bytes: None
        # Called when the session is found closed.
        self.on_lost: Callable[[WalLost], None] = lambda error: None

    @property
    def wal(self) -> Wal:
        """The WAL of the present session."""
        assert self._wal is not None, "the broker has joined"
        return self._wal

    def begin(self, session: int) -> None:
        """Begin a session; the logs of the one before have ended."""
        if self._wal is not None:
            self._wal.lose(WalLost("the session of this broker was closed"))
        backend = SessionWal(self._commits, session, self._bucket.store, self._bucket.uploads)
        self._wal = Wal(self._loop, backend, self._limits, self._committed, self._lost)

    async def open(self, wanted: Sequence[Wanted]) -> list[Partition]:
        """Open logs with their committed batches; those that are open stay."""
        opened: list[Partition | None] = [self._present(one) for one in wanted]
        missing = [(at, one) for at, one in enumerate(wanted) if opened[at] is None]
        if missing:
            found = await self._build([one for _, one in missing])
            for (at, _), built in zip(missing, found, strict=True):
                opened[at] = built
        return [one for one in opened if one is not None]

    def committed(self) -> asyncio.Future[None]:
        """Return a future of the commit of all that was appended."""
        return self.wal.committed()

    def room(self) -> asyncio.Future[None] | None:
        """Return a future of the time when producers may append more; None if they may now."""
        return self.wal.room()

    async def close(self) -> None:
        """Commit all that was appended, unless the session is closed, and end."""
        if self._wal is not None:
            try:
                await asyncio.wait_for(self._wal.close(), _DRAIN_S)
            except TimeoutError:
                count = self._wal.pending_bytes
                logger.error("stopped before the commit of bytes=%d: %s", count, self._wal.failure)
        await self._commits.close()
        await self._reads.close()
        await self._bucket.close()

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        failure = self._wal and self._wal.failure
        return [f"shared partitions take no records: {failure}"] if failure else []

    # --- parts ------------------------------------------------------------------------------

    def _present(self, wanted: Wanted) -> Log | None:
        log = self._logs.get(_key(wanted))
        return None if log is None or log.is_closed else log

    async def _build(self, wanted: Sequence[Wanted]) -> list[Partition]:
        try:
            await self._discarding
            # Batches of a log whose disk has failed may still be on their way.
            await self.wal.committed()
            built = await asyncio.to_thread(self._begin, wanted)
            offsets = {
                _key(one): built[_key(one)].log_end_offset for one in wanted if not one.is_new
            }
            if offsets:
                await self._replay(built, offsets)
            await asyncio.to_thread(_raise_epochs, wanted, built)
        except (MetadataError, ObjectStoreError, DamagedEntry) as error:
            failure = BucketFailure(f"shared partitions could not be opened: {error}")
            return [as_offline(one, failure) for one in wanted]
        except StorageError as error:
            return [as_offline(one, error) for one in wanted]
        for key, log in built.items():
            log.recovery_point = log.log_end_offset
            log.uncommitted = Uncommitted(partial(self.wal.add, key))
        in_use = {key: log for key, log in self._logs.items() if not log.is_closed}
        self._logs = in_use | built
        return [built[_key(one)] for one in wanted]

    def _begin(self, wanted: Sequence[Wanted]) -> dict[Key, Log]:
        return {
            _key(one): self.home.begin_log(
                LogIdentity(one.record.name, one.number, one.record.topic_id),
                one.config,
                0,
                self._now_ms(),
            )
            for one in wanted
        }

    async def _replay(self, built: Mapping[Key, Log], offsets: Mapping[Key, int]) -> None:
        now_ms, reads = self._now_ms(), self._bucket.reads
        async for some in read_wal(self._reads, self._bucket.store, reads, offsets):
            await asyncio.to_thread(_append, built, some, now_ms)

    def _committed(self, run: Run) -> None:
        log = self._logs.get(run.partition)
        if log is not None and not log.is_closed:
            log.committed(run.next_offset)
            self.on_committed(log, run.size_bytes)

    def _lost(self, error: WalLost) -> None:
        lost = [log for log in self._logs.values() if not log.is_closed]
        for log in lost:
            log.failure = error
            self.home.logs.pop((log.topic, log.partition), None)
        self._logs.clear()
        # Another broker may serve them by now; this one would begin them again.
        self._discarding = start_task("discard logs", asyncio.to_thread(self.home.discard, lost))
        self.on_lost(error)


def _key(wanted: Wanted) -> Key:
    return wanted.record.topic_id, wanted.number


def _append(
    built: Mapping[Key, Log], some: Sequence[tuple[Run, memoryview]], now_ms: int
) -> None:
    """Append committed batches; runs in a thread. Raises DiskFailure."""
    for run, batches in some:
        log = built[run.partition]
        for position, header in whole_batches(batches):
            if header.base_offset >= log.log_end_offset:
                batch = batches[position : position + header.size_bytes]
                append_copied(log, header, batch, now_ms)


def _raise_epochs(wanted: Sequence[Wanted], built: Mapping[Key, Log]) -> None:
    """Let logs continue in the epochs of their leader; runs in a thread."""
    for one in wanted:
        log = built[_key(one)]
        log.leader_epoch = log.epochs[-1][0] if log.epochs else -1
        log.raise_epoch(one.record.leaders[one.number].epoch)
