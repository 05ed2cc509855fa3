"""A broker's WAL over a real catalog and a bucket, in virtual time, with faults by a seed."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.wal import begin_session
from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.lines import Calls, Line
from odradek.broker.catalog.sessions import close_session
from odradek.broker.catalog.wal_backend import SessionWal
from odradek.broker.catalog.wal_reading import read_wal
from odradek.broker.catalog.wal_rows import EntryRow, entry_rows
from odradek.broker.ids import Partition
from odradek.broker.wal.entries import Entry, Run, read_index
from odradek.broker.wal.pacing import WalLimits
from odradek.broker.wal.wal import Wal, WalBackend, WalFailure, WalLost
from odradek.storage.objects.opening import StoreOptions, open_store
from odradek.storage.objects.retrying import RetryingStore
from tests.simulation.cluster.loop import SimulatedLoop

LIMITS = WalLimits(entry_bytes_max=4_000, inline_bytes_max=300, linger_s=0.05, puts_per_s=20)


class FaultyBackend:
    """A backend that is late, fails, does its work and loses the answer, or does it later."""

    def __init__(self, backend: WalBackend, source: random.Random, rate: float) -> None:
        self._backend, self._source, self._rate = backend, source, rate
        self.uploads = self.under_way = self.under_way_max = 0
        self.hanging: asyncio.Event | None = None  # uploads wait for it
        self._late: set[asyncio.Future[None]] = set()

    async def upload(self, sequence: int, entry: Entry) -> None:
        self.uploads += 1
        self.under_way += 1
        self.under_way_max = max(self.under_way, self.under_way_max)
        try:
            if self.hanging is not None:
                await self.hanging.wait()
            await self._do(lambda: self._backend.upload(sequence, entry), 0.04)
        finally:
            self.under_way -= 1

    async def discard(self, sequence: int) -> None:
        await self._do(lambda: self._backend.discard(sequence), 0.04)

    async def commit(self, first: int, entries: Sequence[tuple[Entry, bool]]) -> None:
        await self._do(lambda: self._backend.commit(first, entries), 0.003)

    async def _do(self, step: Callable[[], Awaitable[None]], mean_s: float) -> None:
        await asyncio.sleep(self._source.expovariate(1 / mean_s))
        fate = self._source.random()
        if fate < self._rate:
            raise WalFailure("the answer is an error, on purpose")
        if fate < 2 * self._rate:
            self._late.add(asyncio.ensure_future(self._do_late(step)))
            raise WalFailure("the request waits somewhere, on purpose")
        await step()
        if fate < 3 * self._rate:
            raise WalFailure("the answer is lost, on purpose")

    async def end(self) -> None:
        """Wait for the requests that are late."""
        await asyncio.gather(*self._late)

    async def _do_late(self, step: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(self._source.expovariate(5))
        with suppress(WalFailure, WalLost):  # nobody waits for the answer
            await step()


@dataclass
class World:
    """A WAL in use, and what it has answered."""

    seed: int
    path: Path
    fault_rate: float = 0.0
    limits: WalLimits = LIMITS
    ends: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    added: dict[Partition, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    # The base offset of each batch, and the end.
    begins: dict[Partition, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0]))
    readable: dict[Partition, int] = field(default_factory=lambda: defaultdict(int))
    # Partitions with records that were acknowledged and not committed.
    too_early: set[Partition] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.source = random.Random(self.seed)
        self.loop = SimulatedLoop(self.seed)
        self.url = f"sqlite://{self.path / 'catalog.db'}"
        self.engine = open_engine(self.url)
        self.session = begin_session(self.engine)
        (self.path / "bucket").mkdir()
        bucket = open_store(f"file://{self.path / 'bucket'}", StoreOptions())
        self.store = RetryingStore(bucket, timeout_ms=1)
        self.line = Line(open_engine(self.url), "wal", Calls())
        self.threads = ThreadPoolExecutor(4)
        real = SessionWal(self.line, self.session, self.store, self.threads)
        self.backend = FaultyBackend(real, self.source, self.fault_rate)
        self.wal = Wal(self.loop, self.backend, self.limits, self._note)

    def run(self, *works: Callable[[], Awaitable[None]]) -> None:
        """Run works in virtual time, one after the other."""
        asyncio.set_event_loop(self.loop)
        try:
            for work in works:
                self.loop.run_until_complete(work())
            self.loop.run_until_complete(self.wal.close())
            self.loop.run_until_complete(self.backend.end())
            self.loop.run_until_complete(self.line.close())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()
            self.engine.close()

    def append(self, key: Partition, size_bytes: int) -> None:
        """Append a batch of some records."""
        batch = self.source.randbytes(size_bytes)
        base, count = self.ends[key], self.source.randint(1, 3)
        self.wal.add(key, batch, base, base + count)
        self.added[key].append(batch)
        self.ends[key] += count
        self.begins[key].append(self.ends[key])

    def expel(self) -> None:
        """Close the session, as another broker does."""
        self.engine.transact(
            lambda connection: close_session(connection, self.engine, self.session)
        )

    def _note(self, run: Run) -> None:
        assert run.base_offset == self.readable[run.partition]
        self.readable[run.partition] = run.next_offset

    def rows(self) -> list[EntryRow]:
        """Return the committed entries."""
        return self.engine.read(lambda connection: entry_rows(connection, -1, 10_000))

    def ends_committed(self) -> dict[Partition, int]:
        """Return the end of each partition by the rows of the catalog."""
        ends: dict[Partition, int] = {}
        for row in self.rows():
            for run in read_index(row.runs):
                assert ends.get(run.partition, 0) == run.base_offset, "a gap"
                ends[run.partition] = run.next_offset
        return ends

    async def read(self, wanted: Mapping[Partition, int]) -> dict[Partition, bytes]:
        """Read partitions back as a new leader does."""
        found: dict[Partition, bytes] = {}
        ends: dict[Partition, int] = {}
        async for some in read_wal(self.line, self.store, self.threads, wanted):
            for run, batches in some:
                assert isinstance(batches, memoryview), batches
                key = run.partition
                assert run.next_offset > wanted[key]
                assert ends.setdefault(key, run.base_offset) == run.base_offset, "a gap"
                ends[key] = run.next_offset
                found[key] = found.get(key, b"") + bytes(batches)
        return found
