"""Closes logs before their partitions change leader or storage, and learns the outcome.

Between the two no broker serves the partitions, and memory follows no change. The leader that the
catalog then names opens the logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from odradek.broker.errors import MetadataError
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.broker.reassignment.parts import Parts
from odradek.storage.checkpoints import LeftLog
from odradek.storage.copied_log import mark_moved
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import StorageError
from odradek.storage.files import FileSystem
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

_RETRY_S = 0.5


class Store(Protocol):
    """The catalog."""

    async def change_partitions(
        self, work: Callable[[Connection], Sequence[Partition]]
    ) -> Sequence[Partition]:
        """Do work that returns the partitions that it has changed; return them."""

    async def wait_for_changes(self) -> None:
        """Return once no change of this broker is under way, also one whose answer is lost."""


class Closing:
    """Owned by the event loop."""

    def __init__(self, broker: Parts, store: Store) -> None:
        self._store, self._topics, self._partitions = store, broker.topics, broker.partitions
        self._changes, self._group_commit = broker.changes, broker.group_commit
        self._fs, self._now_ms = broker.fs, broker.clock.now_ms

    async def flush(self, logs: Sequence[Log]) -> None:
        """Make all records of logs durable, as far as their disks allow."""
        try:
            await self._group_commit.flush(logs)
        except StorageError as error:
            logger.error("could not flush a log, not handed over: %s", error)

    async def close(
        self, logs: Sequence[Log], epochs: Mapping[Log, int]
    ) -> dict[Log, LeftLog]:
        """Make logs durable and close them; return how they were left.

        `epochs` has the leader epochs from which some of them are elsewhere. A log whose disk
        fails is not among the results, and is offline.
        """
        await self.flush(list(logs))
        loop = asyncio.get_running_loop()
        left: dict[Log, LeftLog] = {}
        failures: dict[Log, StorageError] = {}
        for home in self._partitions.directories:
            own = [log for log in logs if log.directory.parent == home.path and not log.is_closed]
            found = await loop.run_in_executor(
                None, _close_all, self._fs, home, own, epochs, failures
            )
            for log in found:
                self._partitions.release(log)
            left |= found
            try:
                await loop.run_in_executor(None, home.store, home.take_checkpoints())
            except StorageError as error:  # the next round tries again
                logger.error("could not store checkpoints path=%s: %s", home.path, error)
        for log, failure in failures.items():
            logger.error("could not close a log, not handed over log=%s: %s", log.name, failure)
            log.failure = failure
            self._group_commit.on_failed(log, failure)
        return left

    async def commit(self, work: Callable[[Connection], Sequence[Partition]]) -> bool:
        """Change the leaders of closed logs in the catalog; return whether the outcome is known.

        Memory follows the catalog up to it.
        """
        try:
            await self._store.change_partitions(work)
        except MetadataError as error:
            logger.error("could not hand over partitions: %s", error)
            return await self._learn_outcome(in_doubt=True)
        return await self._learn_outcome(in_doubt=False)

    async def remove(self, closed: Iterable[Log]) -> None:
        """Remove the files of closed logs that are not used here any more.

        The next start does it, too.
        """
        for log in filter(self._has_left, closed):
            home = self._partitions.home_of(log)
            try:
                path = await self._partitions.vacate(home, log.directory.name)
            except StorageError as error:
                logger.error("could not remove a log that has moved log=%s: %s", log.name, error)
                continue
            home.schedule_removal([path], self._now_ms() + log.config.file_delete_delay_ms)

    def _has_left(self, log: Log) -> bool:
        key = log.topic_id, log.partition
        return not (self._topics.leads(*key) if log.is_shared else self._topics.is_here(*key))

    async def _learn_outcome(self, *, in_doubt: bool) -> bool:
        """Follow the catalog to the outcome of a change; return whether it is known.

        A change whose answer is lost may be made all the same: a log that another broker leads by
        then must not be opened here. So nothing goes on before the catalog answers, or the session
        of this broker has ended, which gives everything up.
        """
        assert self._changes.follow is not None, "brokers that share a host share a catalog"
        while not self._topics.has_resigned:
            try:
                if in_doubt:
                    await self._store.wait_for_changes()
                await self._changes.follow()
            except MetadataError as error:
                logger.warning("wait for the catalog: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                return True
        return False


def _close_all(
    fs: FileSystem,
    home: LogDirectory,
    logs: Iterable[Log],
    epochs: Mapping[Log, int],
    failures: dict[Log, StorageError],
) -> dict[Log, LeftLog]:
    """Close logs; runs in a thread."""
    left = {}
    for log in logs:
        try:
            if not log.is_shared:
                log.close()
            if log in epochs:
                mark_moved(fs, log.directory, epochs[log])
        except StorageError as error:
            failures[log] = error
            continue
        log.is_handed_over = True
        left[log] = LeftLog(
            log.recovery_point,
            log.log_start_offset,
            home.cleaner_offsets.get((log.topic, log.partition)),
            is_clean=True,
        )
    return left
