"""The parts of a broker that serves shared partitions, put together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from copy import copy
from pathlib import Path

from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.segment_rows import SegmentRow
from odradek.broker.counters.latency import Counts, Times
from odradek.broker.counters.sharing import SharedCounts
from odradek.broker.metadata.members import Brokers
from odradek.broker.shared.accounting import Accounting
from odradek.broker.shared.bill import prices_of
from odradek.broker.shared.bucket import Bucket, wal_limits
from odradek.broker.shared.bucket_copy import BucketCopy
from odradek.broker.shared.building import Builder
from odradek.broker.shared.facts import CacheFacts, SharedFacts
from odradek.broker.shared.janitor import Janitor
from odradek.broker.shared.leasing import Leasing
from odradek.broker.shared.logs import SharedLogs
from odradek.broker.shared.merging import Merging
from odradek.broker.shared.packing import remote_log
from odradek.broker.shared.replicas import ReadReplicas, Waiting
from odradek.broker.shared.tails import StoringLimits
from odradek.broker.shared.uploads import Uploads
from odradek.cleaner.runtime.pool import CleanerPool
from odradek.config.broker import BrokerConfig
from odradek.config.object_store import ObjectStoreConfig
from odradek.storage.cache_directory import CacheDirectory
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.segment import Segment

_MS_PER_S = 1_000


class Sharing:
    """Owned by the event loop, in whose thread it is created."""

    def __init__(
        self,
        bucket: Bucket,
        config: ObjectStoreConfig,
        fs: FileSystem,
        cache: Path,
        open_line: Callable[[str], Line],
        now_ms: Callable[[], int],
        brokers: Brokers,
        waiting: Waiting,
        *,
        cluster_id: str,
        node_id: int,
    ) -> None:
        """`waiting` has the fetches that wait for records."""
        files = CachedFiles(
            fs,
            config.odradek_cache_bytes,
            memory_bytes_max=config.odradek_cache_memory_bytes,
            loop_thread=threading.get_ident(),
        )
        home = CacheDirectory(files, cache, cluster_id=cluster_id, node_id=node_id)
        self._bucket, self._files, self._config = bucket, files, config
        self._counts = counts = SharedCounts()
        self._lines = [open_line(name) for name in ("wal", "shared", "segments", "replicas")]
        commits, reads, segments, following = self._lines
        limits = StoringLimits(
            config.odradek_wal_checkpoint_bytes,
            wal_age_s=config.odradek_wal_checkpoint_ms / _MS_PER_S,
        )
        self.uploads = Uploads(
            bucket, files, segments, limits, brokers.count_elsewhere,
            now_ms, home.cleaner_offsets, counts,
        )  # fmt: skip
        self.merging = Merging(bucket.store, self.uploads, now_ms, counts)

        def is_first() -> bool:
            """Return whether this broker is to do the work of which there is one."""
            return node_id == min(one.node_id for one in brokers)

        self.janitor = Janitor(
            bucket, segments, lambda: config.odradek_object_delete_delay_ms, is_first, counts
        )
        self.prices = prices_of(config)
        self.accounting = Accounting(
            bucket.requests,
            self.prices,
            segments,
            is_first,
            asyncio.get_running_loop().time,
        )
        self._now_ms, self.engine = now_ms, segments.engine
        self.leasing: Leasing | None = None
        self._copies = copies = CacheDirectory(
            files, cache.with_name(f"odradek-replicas.{node_id}"),
            cluster_id=cluster_id, node_id=node_id,
        )  # fmt: skip
        builder = Builder(bucket.store, files, copies)
        self.replicas = ReadReplicas(
            bucket, copies, builder, following, now_ms, waiting, counts
        )
        builder = Builder(bucket.store, files, home)
        self.logs = SharedLogs(
            bucket, wal_limits(config), home, builder, self.uploads, commits, reads, brokers,
            now_ms, counts,
        )  # fmt: skip

    def lease_to_jobs(
        self, cleaner: CleanerPool, config: Callable[[], BrokerConfig]
    ) -> Leasing:
        """Leave the cleaning of partitions to jobs that ask for it."""
        self.leasing = Leasing(
            self.uploads,
            self._bucket,
            self._files,
            self._lines[2],
            self.logs.home,
            cleaner,
            config,
            self._now_ms,
        )
        return self.leasing

    def copy_to_bucket(self, log: Log) -> BucketCopy:
        """Begin to bring the log of a local partition into the bucket."""

        def adopt(segment: Segment, row: SegmentRow) -> None:
            self._files.adopt(segment.log.path, remote_log(self._bucket.store, row))

        return BucketCopy(log, self._copies, self.uploads, adopt, self._now_ms)

    def start(self) -> None:
        """Begin the work that is done now and then."""
        self.janitor.start()
        self.accounting.start()

    async def close(self) -> None:
        """End; nothing may be opened or stored any more."""
        await self.replicas.close()
        await self.janitor.close()
        await self.accounting.close()
        await self.uploads.close()
        for line in self._lines:
            await line.close()
        self._files.close()
        await self._bucket.close()

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        failure = self.logs.wal.failure
        found = [f"shared partitions take no records: {failure}"] if failure else []
        trouble = self._bucket.requests.trouble()
        if trouble is not None and trouble.since_ms is not None:
            found.append(f"the object store does not answer: {trouble.text}")
        leasing = None if self.leasing is None else self.leasing.obstacle
        for what, obstacle in (
            ("jobs cannot clean partitions", leasing),
            ("shared partitions are not stored", self.uploads.obstacle),
            ("small segments are not merged", self.merging.obstacle),
            ("the WAL is not freed", self.janitor.obstacle),
            ("consumers are not served by this broker", self.replicas.obstacle),
        ):
            if obstacle is not None and obstacle.reason:
                found.append(f"{what}: {obstacle.reason}")
        return found

    def facts(self) -> SharedFacts:
        """Return all numbers as they are now."""
        requests, books, counts = self._bucket.requests, self.accounting, self._counts
        return SharedFacts(
            url=self._bucket.url,
            requests=requests.by_purpose(),
            rates=books.rates(),
            retries=requests.retries,
            hedged=requests.hedged,
            trouble=requests.trouble(),
            bill=books.bill(),
            bill_per_month=books.per_month(),
            stored=books.stored,
            counts=copy(counts),
            commits=_noted(counts.commits),
            entries=_noted(counts.entries),
            pending_bytes=self.logs.wal.pending_bytes,
            unstored_bytes=self.uploads.unstored_bytes,
            replicas=len(self.replicas),
            leased=0 if self.leasing is None else len(self.leasing),
            cache=CacheFacts(
                copy(self._files.counters),
                self._files.cached_bytes,
                self._config.odradek_cache_bytes,
                self._files.memory_bytes,
            ),
            pending_bytes_max=self._config.odradek_wal_pending_bytes_max,
            unstored_bytes_max=self.uploads.unstored_bytes_max,
            obstacles={
                "commit": self.logs.wal.failure is not None,
                "store": bool(self.uploads.obstacle.reason),
                "merge": bool(self.merging.obstacle.reason),
                "free": bool(self.janitor.obstacle.reason),
                "serve": bool(self.replicas.obstacle.reason),
            },
        )


def _noted(times: Times) -> tuple[Counts, int]:
    return times.counts.copy(), times.total_us
