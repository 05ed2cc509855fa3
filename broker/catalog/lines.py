"""A connection to the catalog, used by one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from odradek.broker.catalog.engines import Engine
from odradek.broker.metadata.statements import Connection

T = TypeVar("T")


class Line:
    """A connection to the database, and the thread that waits for it."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def transact(self, work: Callable[[Connection], T]) -> T:
        return await self._run(lambda: self.engine.transact(work))

    async def touch(self, work: Callable[[Connection], T]) -> T:
        return await self._run(lambda: self.engine.touch(work))

    async def read(self, work: Callable[[Connection], T]) -> T:
        return await self._run(lambda: self.engine.read(work))

    async def close(self) -> None:
        await self._run(self.engine.close)
        self._thread.shutdown()

    async def _run(self, operation: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, operation)
