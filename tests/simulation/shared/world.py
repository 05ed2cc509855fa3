"""A cluster whose topics are shared: machines whose disks go, and a bucket."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from odradek.broker.catalog.engines import CatalogAway
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared import bucket as buckets
from odradek.broker.shared import janitor, merging, sharing
from odradek.broker.shared.bucket import Bucket
from odradek.broker.shared.building import Builder
from odradek.broker.shared.replicas import ReadReplicas
from odradek.broker.wal.entries import read_index
from odradek.cleaner.rules import merging as merge_rule
from odradek.cleaner.rules.merging import MergeLimits
from odradek.cleaner.runtime import pool
from odradek.cleaner.runtime.pool import CleanerPool
from odradek.cleaner.runtime.worker import Worker
from odradek.storage.errors import BucketFailure
from odradek.storage.merged_segment import write_merged
from odradek.storage.objects import block_cache
from odradek.storage.objects.block_cache import BlockCache
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.objects.read_ahead import ReadAhead
from odradek.storage.objects.remote_files import Claim
from odradek.storage.objects.retrying import RetryingStore
from odradek.storage.objects.store import StoreUnavailable
from odradek.storage.segment import Segment
from tests.histories.history import Place
from tests.simulation.cluster.world import SETTINGS, Machine, World
from tests.simulation.crashfs import CrashFileSystem
from tests.simulation.shared.bucket import BucketOfReplicas, SimulatedBucket, named_keys
from tests.simulation.shared.threads import SimulatedEvent, ThreadedNetwork

_JANITOR_S, _MERGING_S = 1.0, 0.5
# Segments of 700 bytes are merged, already a few.
_MERGED_MIN = 2
_MERGE_LIMITS = MergeLimits(10_000, 10_000, 1 << 60)
_BLOCK_BYTES = 512
SHARED_SETTINGS = {
    **SETTINGS,
    "odradek.storage": "object",
    "odradek.object.store.url": "file:///simulated",
    "odradek.object.store.timeout.ms": "1000",
    "odradek.wal.puts.per.second": "50",
    # Its threads would be those of the machine.
    "odradek.object.store.hedged.percent": "0",
    # Longer than a broker stands still, and than requests are repeated.
    "odradek.object.delete.delay.ms": "8000",
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "500",
    "log.initial.task.delay.ms": "0",
    # So that small segments have entries in their indexes.
    "log.index.interval.bytes": "100",
    "offsets.topic.segment.bytes": "2000",
    "transaction.state.log.segment.bytes": "2000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class SharedWorld(World):
    """A world with a bucket. A broker that is killed loses its disk, too."""

    loop: ThreadedNetwork

    def __init__(self, path: Path, seed: int, count: int) -> None:
        super().__init__(ThreadedNetwork(seed), path, seed, count)
        self.bucket = SimulatedBucket(self.loop, seed, self.catalog, self.history)
        chance = random.Random(f"settings {seed}")
        self.settings = {
            **SHARED_SETTINGS,
            "odradek.wal.inline.bytes.max": chance.choice(["0", "300", "65536"]),
            "odradek.wal.linger.ms": chance.choice(["0", "50"]),
            "odradek.wal.checkpoint.ms": chance.choice(["1", "500", "3000"]),
            "odradek.wal.checkpoint.bytes": chance.choice(["500", "268435456"]),
        }
        # The ends of partitions by the entries up to a place.
        self._ends: dict[Partition, int] = {}
        self._place = 0
        self._cache_bytes = chance.choice([50_000, 1 << 30])
        self._memory_bytes = chance.choice([0, 50_000])
        self.merges = 0  # that were begun

    def passes(self, error: Exception) -> bool:
        """Return whether another start may succeed: later, or once the former lease has ended."""
        return isinstance(error, BucketFailure | CatalogAway) or "is in use by" in str(error)

    def kill(self, machine: Machine, *, loses_power: bool) -> None:
        """End a broker at once; with its disk if the machine loses power."""
        if loses_power:
            self.wipe(machine)
        else:
            super().kill(machine, loses_power=False)

    def wipe(self, machine: Machine) -> None:
        """End a broker at once, with its disk."""
        super().kill(machine, loses_power=True)
        machine.fs = CrashFileSystem(machine.clock)  # type: ignore[arg-type]

    def committed_end(self, place: Place) -> int:
        """Return the end of the records of a partition that have been committed so far."""
        self._look_at_entries()
        found = "SELECT id, stored_offset FROM partition JOIN topic ON topic.id = topic_id"
        ((topic_id, stored_offset),) = self.catalog.read(
            lambda to: to.execute(found + " WHERE name = ? AND number = ?", place)
        )
        return max(self._ends.get((bytes(topic_id), place[1]), 0), int(stored_offset))

    def _look_at_entries(self) -> None:
        for place, runs in self.catalog.read(self._new_entries):
            self._place = place
            for run in read_index(runs):
                end = self._ends.get(run.partition, 0)
                if run.base_offset < end:
                    self.history.troubles.append(
                        f"fence: offset {run.base_offset} was committed after {end - 1}"
                    )
                self._ends[run.partition] = max(end, run.next_offset)

    def _new_entries(self, connection: Connection) -> Sequence[Any]:
        query = "SELECT place, runs FROM wal_entry WHERE place > ? ORDER BY place"
        return connection.execute(query, (self._place,))

    def look_at_catalog(self) -> None:
        """Note entries out of order, and the objects that rows name and the bucket lacks."""
        self._look_at_entries()
        for key in sorted(self.catalog.read(named_keys) - self.bucket.objects.keys()):
            self.history.troubles.append(f"garbage: {key} is not there, a row names it")

    @contextlib.contextmanager
    def simulated(self) -> Iterator[None]:
        """Replace what brokers take from the machine by the simulation's."""
        loop, chance = self.loop, random.Random(f"cleaners {self.seed}")

        def pause(bucket: Bucket, seconds: float) -> None:
            loop.wait_until(bucket._closing.is_set, seconds)
            if bucket._closing.is_set():
                raise StoreUnavailable("the broker stops and does not repeat the request")

        def start_thread(cleaners: CleanerPool, number: int) -> None:
            worker = Worker(number, cleaners.scheduler, loop, cleaners._resources)  # type: ignore[arg-type]
            worker._awake = SimulatedEvent(loop)  # type: ignore[assignment]
            thread = CleanerThread(loop, cleaners, worker)
            cleaners._workers[number] = worker, thread  # type: ignore[assignment]
            loop.start_thread(thread.run)

        store = partial(RetryingStore, clock=loop.time, chance=self.bucket.chance.random)
        files = partial(CachedFiles, block_bytes=_BLOCK_BYTES, clock=loop.time)
        make_cache = BlockCache.__init__

        def small_cache(
            cache: BlockCache, create: Any, bytes_max: int, memory_bytes_max: int, *rest: Any
        ) -> None:
            make_cache(cache, create, self._cache_bytes, self._memory_bytes, *rest)

        def replicas(bucket: Bucket, home: Any, builder: Builder, *rest: Any) -> ReadReplicas:
            of_replicas: Any = BucketOfReplicas(self.bucket)
            builder._store = store(of_replicas, 1_000, sleep=partial(pause, bucket))
            parts: Any = SimpleNamespace(store=builder._store, reads=bucket.reads)
            return ReadReplicas(parts, home, builder, *rest)

        def merge(*some: Any) -> Segment:
            self.merges += 1
            return write_merged(*some)

        with super().simulated(), contextlib.ExitStack() as stack:
            for target, name, value in (
                (buckets, "open_store", lambda *_: self.bucket),
                (buckets, "RetryingStore", store),
                (Bucket, "_pause", pause),
                (sharing, "CachedFiles", files),
                (sharing, "ReadReplicas", replicas),
                (janitor, "_LOOK_S", _JANITOR_S),
                (merging, "_LOOK_S", _MERGING_S),
                (merging, "_RETRY_S", _MERGING_S),
                (merging, "write_merged", merge),
                (merge_rule, "MERGED_MIN", _MERGED_MIN),
                (MergeLimits, "of", lambda *_: _MERGE_LIMITS),
                (block_cache, "threading", loop.module()),
                (BlockCache, "__init__", small_cache),
                (ReadAhead, "begin", lambda ahead, file, start, end: start),
                (Claim, "result", lambda claim: loop.claim_result(claim)),
                (asyncio, "run_coroutine_threadsafe", loop.run_threadsafe),
                (CleanerPool, "_start_thread", start_thread),
                (Worker, "_ask", lambda worker, function, *args, **more:
                 loop.on_loop(function, *args, **more)),
                (pool.secrets, "randbelow", chance.randrange),
            ):  # fmt: skip
                stack.enter_context(patch.object(target, name, value))
            yield


class CleanerThread:
    """A thread of the cleaner; see threading.Thread."""

    def __init__(self, loop: ThreadedNetwork, cleaners: CleanerPool, worker: Worker) -> None:
        self._loop, self._cleaners, self._worker = loop, cleaners, worker
        self._is_alive = True

    def run(self) -> None:
        """Clean logs; see CleanerPool._run."""
        error: BaseException | None = None
        try:
            self._worker.run()
        except Exception as caught:
            error = caught
        self._is_alive = False
        self._loop.on_loop(self._cleaners._ended, self._worker, error)

    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self._is_alive

    def join(self, seconds: float | None = None) -> None:
        """Wait for its end."""
        self._loop.wait_until(lambda: not self._is_alive, seconds)
