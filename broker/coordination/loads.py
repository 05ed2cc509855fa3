"""The loading of a coordinator's partitions; one that cannot be loaded is tried again."""

from __future__ import annotations

import asyncio
import logging
from asyncio import Task
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from odradek.broker import errors
from odradek.broker.coordination.seams import Loop
from odradek.storage.errors import NotLeader

logger = logging.getLogger(__name__)

_RETRY_MIN_S, _RETRY_MAX_S = 0.5, 60.0


class Loads:
    """Loads partitions, each by one task at a time. The event loop owns it."""

    def __init__(
        self,
        what: str,
        loop: Loop,
        load: Callable[[int], Awaitable[None]],
        is_wanted: Callable[[int], bool],
    ) -> None:
        """`load` raises an explained error if it cannot load a partition that `is_wanted`."""
        self._what, self._loop, self._load, self._is_wanted = what, loop, load, is_wanted
        self._loading: set[int] = set()
        # By partition that could not be loaded: the reason.
        self.failed: dict[int, str] = {}
        self._tries: Counter[int] = Counter()
        self._tasks: set[Task[None]] = set()

    def is_under_way(self, partition: int) -> bool:
        """Return whether a partition is being loaded."""
        return partition in self._loading

    def start(self, partition: int) -> None:
        """Load a partition in a task."""
        self._loading.add(partition)
        task = asyncio.ensure_future(self.load(partition))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def load(self, partition: int) -> None:
        """Load a partition."""
        self._loading.add(partition)
        self.failed.pop(partition, None)
        try:
            await self._load(partition)
        except errors.EXPLAINED as error:
            self._try_later(partition, error)
        else:
            del self._tries[partition]
        finally:
            self._loading.discard(partition)

    def forget(self, partition: int) -> None:
        """Forget the failures of a partition that another broker leads."""
        self.failed.pop(partition, None)
        del self._tries[partition]

    def problems(self) -> list[str]:
        """Return a line for each partition that could not be loaded."""
        return [
            f"partition {partition} of {self._what} could not be loaded, tries again: {reason}"
            for partition, reason in sorted(self.failed.items())
        ]

    def close(self) -> None:
        """Load nothing any more."""
        for task in self._tasks:
            task.cancel()

    def _try_later(self, partition: int, error: Exception) -> None:
        if not self._is_wanted(partition):
            return
        pause_s = min(_RETRY_MIN_S * 2.0 ** self._tries[partition], _RETRY_MAX_S)
        self._tries[partition] += 1
        self.failed[partition] = str(error)
        # Logs move, and a broker that stops opens none: that is no error, though it is retried.
        logger.log(
            logging.INFO if isinstance(error, NotLeader) else logging.ERROR,
            "failed to load %s partition=%d retry_in_s=%g error=%s",
            self._what, partition, pause_s, error,
        )  # fmt: skip
        self._loop.call_later(pause_s, partial(self._retry, partition, self._tries[partition]))

    def _retry(self, partition: int, tries: int) -> None:
        # Another load may have begun meanwhile, and failed: it has a retry of its own.
        if self._tries[partition] != tries or partition not in self.failed:
            return
        if self._is_wanted(partition):
            self.start(partition)
