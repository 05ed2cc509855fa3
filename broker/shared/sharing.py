"""The parts of a broker that serves shared partitions, put together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from odradek.broker.catalog.lines import Line
from odradek.broker.shared.bucket import Bucket, wal_limits
from odradek.broker.shared.building import Builder
from odradek.broker.shared.janitor import Janitor
from odradek.broker.shared.logs import SharedLogs
from odradek.broker.shared.tails import StoringLimits
from odradek.broker.shared.uploads import Uploads
from odradek.config.object_store import ObjectStoreConfig
from odradek.storage.cache_directory import CacheDirectory
from odradek.storage.files import FileSystem
from odradek.storage.objects.cached_files import CachedFiles

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
        is_first: Callable[[], bool],
        *,
        cluster_id: str,
        node_id: int,
    ) -> None:
        """`is_first` returns whether this broker is to do the work of which there is one."""
        files = CachedFiles(
            fs, config.odradek_cache_bytes, loop_thread=threading.get_ident()
        )
        home = CacheDirectory(files, cache, cluster_id=cluster_id, node_id=node_id)
        self._bucket, self._files = bucket, files
        self._lines = [open_line(name) for name in ("wal", "shared", "segments")]
        commits, reads, segments = self._lines
        limits = StoringLimits(
            config.odradek_wal_checkpoint_bytes,
            wal_age_s=config.odradek_wal_checkpoint_ms / _MS_PER_S,
        )
        self.uploads = Uploads(bucket, files, segments, limits, now_ms, home.cleaner_offsets)
        self.janitor = Janitor(
            bucket, segments, lambda: config.odradek_object_delete_delay_ms, is_first
        )
        builder = Builder(bucket.store, files, home)
        self.logs = SharedLogs(
            bucket, wal_limits(config), home, builder, self.uploads, commits, reads, now_ms
        )

    async def close(self) -> None:
        """End; nothing may be opened or stored any more."""
        await self.janitor.close()
        await self.uploads.close()
        for line in self._lines:
            await line.close()
        self._files.close()
        await self._bucket.close()

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        failure = self.logs.wal.failure
        found = [f"shared partitions take no records: {failure}"] if failure else []
        trouble = self._bucket.store.trouble
        if trouble:
            found.append(f"the object store does not answer: {trouble}")
        if self.uploads.problem:
            found.append(f"shared partitions are not stored: {self.uploads.problem}")
        if self.janitor.problem:
            found.append(f"the WAL is not freed: {self.janitor.problem}")
        return found
