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
from odradek.broker.counters.sharing import SharedCounts
from odradek.broker.errors import MetadataError
from odradek.broker.ids import Partition as Key
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.members import Brokers
from odradek.broker.shared.bucket import Bucket
from odradek.broker.shared.building import NOTHING, Builder, Built, stops
from odradek.broker.shared.exchanging import CleanedUpload
from odradek.broker.shared.reading_back import read_back
from odradek.broker.shared.uploads import Uploads
from odradek.broker.topics.states import Partition, Wanted, as_offline
from odradek.broker.wal.entries import Run
from odradek.broker.wal.pacing import WalLimits
from odradek.broker.wal.wal import Wal, WalLost
from odradek.storage.cache_directory import CacheDirectory
from odradek.storage.errors import BucketFailure, NotLeader, StorageError
from odradek.storage.log import Log
from odradek.storage.objects.store import ObjectStoreError
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
        builder: Builder,
        uploads: Uploads,
        commits: Line,
        reads: Line,
        brokers: Brokers,
        now_ms: Callable[[], int],
        counts: SharedCounts,
    ) -> None:
        """`commits` and `reads` are connections to the catalog: neither waits for the other."""
        self._bucket, self._limits, self.home = bucket, limits, home
        self._builder, self._uploads, self._now_ms = builder, uploads, now_ms
        self._commits, self._reads, self._counts = commits, reads, counts
        self._brokers = brokers
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
        self._wal = Wal(
            self._loop,
            backend,
            self._limits,
            self._committed,
            self._lost,
            self._counts,
            self._brokers.__len__,
        )
        self._uploads.begin(session)

    async def open(self, wanted: Sequence[Wanted]) -> list[Partition]:
        """Open logs with their committed batches; those that are open stay."""
        opened: list[Partition | None] = [self._present(one) for one in wanted]
        missing = [(at, one) for at, one in enumerate(wanted) if opened[at] is None]
        if missing:
            found = await self._build([one for _, one in missing])
            for (at, _), built in zip(missing, found, strict=True):
                opened[at] = built
        return [one for one in opened if one is not None]

    def open_no_more(self) -> None:
        """Leave the logs that are not open yet to other brokers: this one is to stop.

        There may be thousands, also of a portion that is being opened.
        """
        self._builder.is_stopping = True

    def committed(self) -> asyncio.Future[None]:
        """Return a future of the commit of all that was appended."""
        return self.wal.committed()

    def room(self) -> asyncio.Future[None] | None:
        """Return a future of the time when producers may append more; None if they may now."""
        return self.wal.room()

    async def drain(self) -> None:
        """Commit all that was appended, unless the session is closed."""
        if self._wal is not None:
            try:
                await asyncio.wait_for(self._wal.close(), _DRAIN_S)
            except TimeoutError:
                count = self._wal.pending_bytes
                logger.error("stopped before the commit of bytes=%d: %s", count, self._wal.failure)

    async def store_starts(self, offsets: Mapping[Log, int]) -> list[Log]:
        """Let the catalog have log start offsets; return the logs that are not led any more.

        Raises MetadataError.
        """
        return await self._uploads.store_starts(offsets)

    def adopt(self, log: Log) -> None:
        """Follow the segments that a log seals."""
        if not log.is_shared:
            return
        rolled = log.on_roll

        def follow(log: Log) -> None:
            if rolled is not None:
                rolled(log)
            self._uploads.rolled(log)

        log.on_roll = follow

    # --- parts ------------------------------------------------------------------------------

    def _present(self, wanted: Wanted) -> Log | None:
        log = self._logs.get(wanted.key)
        return None if log is None or log.is_closed else log

    async def _build(self, wanted: Sequence[Wanted]) -> list[Partition]:
        if self._builder.is_stopping:
            return [as_offline(one, stops(one)) for one in wanted]
        begun_s, wal = self._loop.time(), self.wal
        try:
            await self._discarding
            # Batches of a log whose disk has failed may still be on their way.
            await wal.committed()
            await self._uploads.release(one.key for one in wanted)
            found = await read_back(
                self._bucket, self._reads, self._builder, wanted, self._now_ms()
            )
        except (MetadataError, ObjectStoreError) as error:
            failure = BucketFailure(f"shared partitions could not be opened: {error}")
            return [as_offline(one, failure) for one in wanted]
        except StorageError as error:
            return [as_offline(one, error) for one in wanted]
        if wal.is_lost:  # perhaps before the next session begins
            lost = NotLeader("the session of this broker was closed meanwhile")
            return [as_offline(one, lost) for one in wanted]
        logs = {key: log for key, log in found.logs.items() if isinstance(log, Log)}
        for key, log in logs.items():
            log.recovery_point = log.log_end_offset
            exchanging = partial(CleanedUpload, self._uploads, log)
            log.uncommitted = Uncommitted(partial(wal.add, key), exchanging)
            of_log = found.stored.get(key, NOTHING)
            self._uploads.track(key, log, of_log, found.wal_bytes[key])
            if of_log.cleaner_offset is not None:
                self.home.cleaner_offsets[log.topic, log.partition] = of_log.cleaner_offset
        in_use = {key: log for key, log in self._logs.items() if not log.is_closed}
        self._logs = in_use | logs
        if found.stored:
            wal_bytes = sum(found.wal_bytes.values())
            self._opened(len(found.stored), wal_bytes, self._loop.time() - begun_s)
        return [_as_opened(one, found.logs[one.key]) for one in wanted]

    def _opened(self, count: int, wal_bytes: int, took_s: float) -> None:
        ms = round(took_s * 1000)
        self._counts.opened_logs += count
        self._counts.opening_ms += ms
        self._counts.opening_wal_bytes += wal_bytes
        logger.info("opened shared logs=%d wal_bytes=%d ms=%d", count, wal_bytes, ms)

    def _committed(self, run: Run) -> None:
        log = self._logs.get(run.partition)
        if log is not None and not log.is_closed:
            log.committed(run.next_offset)
            self._uploads.committed(log, run.size_bytes, self.wal.committed_count)
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


def _as_opened(wanted: Wanted, built: Built) -> Partition:
    return built if isinstance(built, Log) else as_offline(wanted, built)
