"""The event loop's own threads, for short work that waits for the disk or the network."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from odradek.config.broker import BrokerConfig


class BackgroundThreads:
    """The loop's default executor, of a size that may change; the event loop owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Leave the loop's executor as it is, until a size is known."""
        self._loop = loop
        self._pool: ThreadPoolExecutor | None = None
        self._count = 0

    def follow(self, config: BrokerConfig) -> None:
        """Set the number of threads to that of the settings."""
        count = config.background_threads
        if count == self._count:
            return
        former, self._count = self._pool, count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="background")
        self._loop.set_default_executor(self._pool)
        if former is not None:
            former.shutdown(wait=False)  # running work ends by itself
