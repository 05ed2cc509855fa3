"""Changes of the metadata, one at a time.

A change reads memory, decides, writes to the store, waits for the disk and then updates memory. If
another change ran while it waits, both could create the same topic. If it were dropped half-way
because its client has gone, memory and disk would disagree. So changes queue up, and a change that
has begun runs to its end.

Where several brokers share the store, another broker's change may come first. The store refuses
then, memory follows that change, and the change here is decided again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from odradek.broker.errors import MetadataError
from odradek.broker.loop.slices import Sliced, Slices

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Failures to follow, within one change, of a store that does not refuse the change itself.
_FAILURES_MAX = 10


class OutOfDate(Exception):
    """Other brokers have changed the metadata since memory had it."""


async def _nothing() -> None:
    """Do nothing: no other broker changes the metadata."""


def _note_failure(change: asyncio.Task[Any]) -> None:
    """Log the error of a change whose caller has gone."""
    error = None if change.cancelled() else change.exception()
    if error is not None:
        logger.error("a change failed after its client had gone: %s", error)


class Changes:
    """The queue of changes; owns the tasks that run them."""

    def __init__(self, slices: Slices | None = None) -> None:
        """With `slices` requests are served while a large change is decided."""
        self._slices = slices
        self._turn = asyncio.Lock()
        # Brings memory up to date with other brokers' changes.
        self.follow: Callable[[], Coroutine[Any, Any, None]] | None = None
        # The same, for a caller outside of the queue, and only as far as the store can be read.
        self.catch_up: Callable[[], Awaitable[None]] = _nothing
        # Lets the store refuse the next change with an error, as it refuses any other.
        self.refuse: Callable[[MetadataError], None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a change after those before it; cancelling the caller does not stop it."""
        task = asyncio.get_running_loop().create_task(self._in_turn(change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_note_failure)
            raise
        finally:
            del task  # the traceback of its error refers to this frame

    async def close(self) -> None:
        """Wait for the changes that have begun."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _in_turn(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        failures = 0
        async with self._turn:
            while True:
                try:
                    if self._slices is None:
                        return await change()
                    return await Sliced(change(), self._slices)
                except OutOfDate:
                    assert self.follow is not None, "only a shared store raises it"
                    assert self.refuse is not None
                    try:
                        await self.follow()
                    except MetadataError as error:
                        failures += 1
                        if failures >= _FAILURES_MAX:
                            self.refuse(error)
