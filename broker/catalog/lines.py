"""Connections to the catalog, each with a thread that waits for it; their times are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter_ns
from typing import TypeVar

from odradek.broker.catalog.engines import Engine
from odradek.broker.counters.latency import Times
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.changes import OutOfDate
from odradek.broker.metadata.statements import Connection

T = TypeVar("T")

_NS_PER_MS = 1_000_000


class Calls:
    """The counts of a broker's transactions in the catalog. The event loop owns it."""

    def __init__(self) -> None:
        # Each time includes the wait for the transaction before it on the same connection.
        self.changes, self.leases, self.reads = Times(), Times(), Times()
        self.failures = 0
        # Changes that were decided again, since another broker had changed the metadata.
        self.conflicts = 0
        self.succeeded_ns = perf_counter_ns()

    @property
    def silence_ms(self) -> int:
        """The time since a transaction last succeeded."""
        return (perf_counter_ns() - self.succeeded_ns) // _NS_PER_MS


class Line:
    """A connection to the database, and the thread that waits for it."""

    def __init__(self, engine: Engine, name: str, calls: Calls) -> None:
        self.engine, self._calls = engine, calls
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def transact(self, work: Callable[[Connection], T]) -> T:
        """See Engine.transact."""
        return await self._count(self._calls.changes, lambda: self.engine.transact(work))

    async def touch(self, work: Callable[[Connection], T]) -> T:
        """See Engine.touch."""
        return await self._count(self._calls.leases, lambda: self.engine.touch(work))

    async def read(self, work: Callable[[Connection], T]) -> T:
        """See Engine.read."""
        return await self._count(self._calls.reads, lambda: self.engine.read(work))

    async def close(self) -> None:
        """Close the connection."""
        await self._run(self.engine.close)
        self._thread.shutdown()

    async def _count(self, times: Times, operation: Callable[[], T]) -> T:
        calls, begun_ns = self._calls, perf_counter_ns()
        try:
            result = await self._run(operation)
        except OutOfDate:
            calls.conflicts += 1
            raise
        except MetadataError:
            calls.failures += 1
            raise
        finally:
            times.observe(begun_ns)
        calls.succeeded_ns = perf_counter_ns()
        return result

    async def _run(self, operation: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, operation)
