"""Moves of logs between log directories: clients begin them, the next start resumes them.

Threads copy the files, for as many logs at once as there are directories. When the disk refuses an
operation, the move ends and the log stays where it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial

from odradek.broker.durability.group_commit import GroupCommit
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.changes import Changes
from odradek.broker.topics.partitions import Partitions
from odradek.broker.topics.registry import Topics
from odradek.storage.checkpoints import TopicPartition
from odradek.storage.copied_log import is_copy
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import CopyCancelled, DiskFailure, StorageError
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.moving import TAIL_BYTES_MAX, Copy

logger = logging.getLogger(__name__)


class Moves:
    """The moves under way. The event loop owns it."""

    def __init__(
        self,
        fs: FileSystem,
        partitions: Partitions,
        group_commit: GroupCommit,
        changes: Changes,
        now_ms: Callable[[], int],
    ) -> None:
        self._fs, self._partitions = fs, partitions
        self._group_commit, self._changes, self._now_ms = group_commit, changes, now_ms
        self._running: dict[TopicPartition, tuple[Copy, asyncio.Task[None]]] = {}
        self._turns = asyncio.Semaphore(len(partitions.directories))
        self._beginning = asyncio.Lock()
        self._is_closing = False
        # Called with a log that could not be moved because of a disk.
        self.on_failed: Callable[[Log, StorageError], None] = lambda log, error: None
        # Called with a log as soon as it has moved: readers of its old files must stop.
        self.on_moved: Callable[[Log], None] = lambda log: None

    def copies(self) -> Iterator[Copy]:
        """Iterate over the copies under way."""
        return iter([copy for copy, _ in self._running.values()])

    def is_moving(self, log: Log) -> bool:
        """Return whether a log moves to another directory."""
        return (log.topic, log.partition) in self._running

    async def begin(self, log: Log, home: LogDirectory) -> None:
        """Begin to move a log to a directory, and stop a move to another; return once it began.

        Raises DiskFailure.
        """
        async with self._beginning:
            await self._begin(log, home)

    async def _begin(self, log: Log, home: LogDirectory) -> None:
        running = self._running.get((log.topic, log.partition))
        if running is not None:
            copy, task = running
            if copy.log is log and copy.home is home:
                return
            copy.is_cancelled = True
            await asyncio.wait([task])
        source = self._partitions.home_of(log)
        if source is home or log.is_closed:
            return
        copy = Copy(self._fs, log, source, home)
        await asyncio.to_thread(copy.begin)
        logger.info("began to move log=%s from=%s to=%s", log.name, source.path, home.path)
        self._running[log.topic, log.partition] = copy, start_task("move a log", self._run(copy))

    async def resume(self, topics: Topics) -> None:
        """Begin again the moves that the last stop interrupted; called once, at the start."""
        for home in list(self._partitions.directories):
            for name, (topic_name, number) in home.futures_at_start.items():
                topic = topics.get(topic_name)
                if topic is not None and topic.other_leader(number) is not None:
                    continue  # a broker of the same host
                if is_copy(self._fs, home.path / name):
                    continue  # of another host's log
                try:
                    log = topic.log(number) if topic else None
                    await asyncio.to_thread(home.remove, [home.path / name])
                    if log is not None:
                        await self.begin(log, home)
                except StorageError as error:
                    # If the log is offline, the copy may be needed once the log is back.
                    logger.warning("left alone a copy path=%s: %s", home.path / name, error)

    async def close(self) -> None:
        """Stop the moves; the next start resumes them."""
        self._is_closing = True
        for copy, _ in self._running.values():
            copy.is_cancelled = True
        await asyncio.gather(*(task for _, task in self._running.values()))

    async def _run(self, copy: Copy) -> None:
        log = copy.log
        try:
            async with self._turns:
                await self._copy(copy)
        except CopyCancelled:
            pass
        except StorageError as error:
            logger.error("failed to move log=%s to=%s: %s", log.name, copy.home.path, error)
            self.on_failed(log, error)
        try:
            if not self._is_closing:
                await asyncio.to_thread(copy.discard)
        except StorageError as error:  # the next start removes it
            logger.error("could not remove a copy path=%s: %s", copy.directory, error)
        finally:
            del self._running[log.topic, log.partition]

    async def _copy(self, copy: Copy) -> None:
        tail_bytes_max = TAIL_BYTES_MAX
        while not (copy.is_cancelled or copy.log.is_closed):
            work = copy.next_work()
            try:
                await asyncio.to_thread(copy.carry_on, work)
            except DiskFailure:
                # Retention or the cleaner may have taken a segment away meanwhile.
                if all(one in copy.log.segments for one in work.missing):
                    raise
            # Topics are not deleted meanwhile.
            if await self._changes.run(partial(self._finish, copy, tail_bytes_max)):
                return
            tail_bytes_max *= 2  # so that the move ends, however fast the log grows

    async def _finish(self, copy: Copy, tail_bytes_max: int) -> bool:
        log = copy.log
        if not copy.finish(self._now_ms(), tail_bytes_max):
            return False
        self.on_moved(log)
        await self._group_commit.flush([log])
        if copy.left is not None:
            removed_ms = self._now_ms() + log.config.file_delete_delay_ms
            copy.source.forget_offsets((log.topic, log.partition))
            copy.source.schedule_removal([copy.left], removed_ms)
        logger.info("moved log=%s from=%s to=%s", log.name, copy.source.path, copy.home.path)
        return True
