"""The WAL of shared topics by itself: the time until a batch is durable, and the PUTs it takes.

    python -m bench.wal [--catalog postgresql://…] [--store s3://bucket/prefix] [--no-delays]

Without addresses the catalog is a file of SQLite and the bucket a folder. Each PUT and each commit
gets the delay of a cloud in addition: PUT p50 30 ms and p99 150 ms, commit 2 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.pairs import quantile
from bench.servers.cloud import COMMIT_S, P50_S, SIGMA
from odradek.broker.catalog.engines import Engine, open_engine
from odradek.broker.catalog.lines import Calls, Line
from odradek.broker.catalog.schema import migrate
from odradek.broker.catalog.sessions import open_session
from odradek.broker.catalog.wal_backend import SessionWal
from odradek.broker.catalog.wal_reading import read_wal
from odradek.broker.metadata.members import Member
from odradek.broker.metadata.statements import Connection
from odradek.broker.wal.entries import Entry
from odradek.broker.wal.pacing import WalLimits
from odradek.broker.wal.wal import Wal
from odradek.storage.objects.opening import StoreOptions, open_store
from odradek.storage.objects.probe import probe
from odradek.storage.objects.retrying import RetryingStore

_TOPIC = b"t" * 16
_PARTITIONS, _RECORD, _BATCH = 2_000, 1_000, 16_000


class Delayed:
    """A backend with the delays of a cloud; it counts the PUTs."""

    def __init__(self, backend: SessionWal, *, is_delayed: bool) -> None:
        self._backend, self._is_delayed = backend, is_delayed
        self._source = random.Random(1)
        self.puts = self.commits = 0

    async def upload(self, sequence: int, entry: Entry) -> None:
        self.puts += 1
        if self._is_delayed:
            await asyncio.sleep(P50_S * self._source.lognormvariate(0, SIGMA))
        await self._backend.upload(sequence, entry)

    async def discard(self, sequence: int) -> None:
        await self._backend.discard(sequence)

    async def commit(self, first: int, entries: Sequence[tuple[Entry, bool]]) -> None:
        self.commits += 1
        if self._is_delayed:
            await asyncio.sleep(COMMIT_S)
        await self._backend.commit(first, entries)


class Writer:
    """Appends batches to partitions, and notes the times until they are durable."""

    def __init__(self, wal: Wal) -> None:
        self._wal, self._ends = wal, [0] * _PARTITIONS
        self.times_ms: list[float] = []
        self.size_bytes = 0

    def append(self, partition: int, batch: bytes) -> asyncio.Future[None]:
        """Append a batch of one record."""
        base = self._ends[partition]
        self._ends[partition] += 1
        self.size_bytes += len(batch)
        begun_s = time.perf_counter()
        self._wal.add((_TOPIC, partition), batch, base, base + 1)
        done = self._wal.committed()
        done.add_done_callback(
            lambda _: self.times_ms.append((time.perf_counter() - begun_s) * 1_000)
        )
        return done

    async def one_at_a_time(self, duration_s: float) -> None:
        """Append a record once the one before is durable."""
        batch, end_s = os.urandom(_RECORD), time.perf_counter() + duration_s
        while time.perf_counter() < end_s:
            await self.append(0, batch)

    async def at_rate(self, duration_s: float, rate: float, batch: bytes, partitions: int) -> None:
        """Append `rate` batches a second, whether those before are durable or not."""
        begun_s, count, last = time.perf_counter(), 0, None
        while (passed_s := time.perf_counter() - begun_s) < duration_s:
            while count < passed_s * rate:
                last = self.append(count % partitions, batch)
                count += 1
            await asyncio.sleep(0.001)
        assert last is not None
        await last

    async def as_fast_as_possible(self, duration_s: float) -> None:
        """Append with at most 64 MB that are not durable."""
        batch, end_s, count = os.urandom(64 * _BATCH), time.perf_counter() + duration_s, 0
        while time.perf_counter() < end_s:
            last = self.append(count % 12, batch)
            count += 1
            if self._wal.pending_bytes > 64_000_000:
                await last
            await asyncio.sleep(0)
        await last


LOADS: Mapping[str, Callable[[Writer, float], Awaitable[None]]] = {
    "one 1 kB record at a time": lambda writer, seconds: writer.one_at_a_time(seconds),
    "20 MB/s of 16 kB batches, 12 partitions": lambda writer, seconds: writer.at_rate(
        seconds, 1_250, os.urandom(_BATCH), 12
    ),
    "2,000 partitions, a record of 100 B each in 5 s": lambda writer, seconds: writer.at_rate(
        seconds, 400, os.urandom(100), _PARTITIONS
    ),
    "as fast as possible": lambda writer, seconds: writer.as_fast_as_possible(seconds),
}


def begin_session(engine: Engine, lease_ms: int = 3_600_000) -> int:
    """Create the tables, unless they are there, and open a session."""

    def work(connection: Connection) -> int:
        migrate(engine, connection)
        return open_session(connection, engine, Member(1, "bench", None, ()), lease_ms)

    return engine.transact(work)


async def measure(name: str, engine: Engine, args: argparse.Namespace) -> None:
    """Run one load in a session of its own, and print its figures."""
    store = RetryingStore(open_store(args.store, StoreOptions()), timeout_ms=30_000)
    probe(store)
    line, threads = Line(open_engine(args.catalog), "wal", Calls()), ThreadPoolExecutor(4)
    real = SessionWal(line, begin_session(engine), store, threads)
    backend = Delayed(real, is_delayed=not args.no_delays)
    wal = Wal(asyncio.get_running_loop(), backend, WalLimits(), lambda run: None)
    writer = Writer(wal)
    begun_s = time.perf_counter()
    await LOADS[name](writer, args.seconds)
    spent_s = time.perf_counter() - begun_s
    await wal.close()
    await line.close()
    threads.shutdown()
    times = sorted(writer.times_ms)
    print(
        f"{name:48} p50 {quantile(times, 0.5):7.1f} ms  p99 {quantile(times, 0.99):7.1f} ms  "
        f"{writer.size_bytes / spent_s / 1e6:7.1f} MB/s  {backend.puts / spent_s:5.1f} PUT/s  "
        f"{backend.commits / spent_s:6.1f} commits/s",
        flush=True,
    )


async def read_back(args: argparse.Namespace) -> None:
    """Read the entries of all loads as a new leader does, and print the rate."""
    store = RetryingStore(open_store(args.store, StoreOptions()), timeout_ms=30_000)
    line, threads = Line(open_engine(args.catalog), "wal", Calls()), ThreadPoolExecutor(4)
    begun_s, size_bytes = time.perf_counter(), 0
    wanted = {(_TOPIC, number): 0 for number in range(_PARTITIONS)}
    async for some in read_wal(line, store, threads, wanted):
        size_bytes += sum(run.size_bytes for run, _ in some)
    spent_s = time.perf_counter() - begun_s
    await line.close()
    threads.shutdown()
    print(f"read back by a new leader, all loads {size_bytes / spent_s / 1e6:20.1f} MB/s")


def main() -> None:
    """Measure each load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalog")
    parser.add_argument("--store")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--no-delays", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        args.catalog = args.catalog or f"sqlite://{Path(folder) / 'catalog.db'}"
        bucket = Path(folder) / "bucket"
        bucket.mkdir()
        prefix = f"/bench-{uuid.uuid4().hex[:8]}"  # of this run, in a bucket that may have others
        args.store = args.store + prefix if args.store else f"file://{bucket}"
        engine = open_engine(args.catalog)
        for name in LOADS:
            asyncio.run(measure(name, engine, args))
        asyncio.run(read_back(args))
        engine.close()


if __name__ == "__main__":
    main()
