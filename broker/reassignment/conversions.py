"""Brings partitions to the storage of their topics: into the bucket, or to the leaders' disks.

    copy       the leader copies nearly all of the log, which it serves meanwhile
    close      requests are refused as by a broker that does not lead the partition
    finish     the rest is copied, a few MiB
    commit     the catalog has the rows of segments, and no host; or a host, and no rows
    open       the leader serves the log from there, and removes the former files

When a disk, the bucket or the catalog refuses, the leader opens the log again as it was, and tries
later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.reassignment.closing import Closing, Store
from odradek.broker.reassignment.local_copy import LocalCopy
from odradek.broker.reassignment.parts import Parts
from odradek.broker.shared.log_copy import LogCopy
from odradek.broker.shared.obstacle import Obstacle
from odradek.broker.shared.sharing import Sharing
from odradek.config.object_store import LOCAL, OBJECT
from odradek.storage.errors import BucketFailure, StorageError
from odradek.storage.log import Log
from odradek.storage.objects.store import ObjectStoreError

logger = logging.getLogger(__name__)

_LOOK_S, _RETRY_S = 1.0, 10.0
# How long a partition is not served while the rest is uploaded.
_PATIENCE_S = 5.0


class Conversions:
    """Owned by the event loop."""

    def __init__(self, broker: Parts, store: Store, sharing: Sharing) -> None:
        self._broker, self._sharing, self._closing = broker, sharing, Closing(broker, store)
        self._own_id, self._topics = broker.brokers.own.node_id, broker.topics
        self._changes, self._cleaner, self._moves = broker.changes, broker.cleaner, broker.moves
        self._task: asyncio.Task[None] | None = None
        # The logs that could not be brought over, and when each is tried again.
        self._failed: dict[Log, float] = {}
        self._obstacle = Obstacle(logger, "change the storage of a partition")

    def start(self) -> None:
        """Begin to look now and then."""
        self._task = start_task("change the storage of partitions", self._run())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        reason = self._obstacle.reason
        return [f"the storage of partitions stays: {reason}"] if reason else []

    # --- parts ------------------------------------------------------------------------------

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_S)
            while (log := next(self._due(loop.time()), None)) is not None:
                # Others have their turns before it is tried again.
                self._failed[log] = loop.time() + _RETRY_S
                try:
                    if await self._convert(log):
                        del self._failed[log]
                except Exception as error:  # The root of a task: the next try may succeed.
                    self._obstacle.note(error)
            self._failed = {log: at for log, at in self._failed.items() if self._is_due(log)}
            if not self._failed:
                self._obstacle.end()

    def _due(self, now_s: float) -> Iterator[Log]:
        for topic in self._topics:
            for log in topic.logs:
                if self._failed.get(log, now_s) <= now_s and self._is_due(log):
                    yield log

    def _is_due(self, log: Log) -> bool:
        topic = self._topics.by_id(log.topic_id)
        if topic is None or not self._topics.serves(log):
            return False
        is_wanted = log.is_shared != (topic.config.odradek_storage == OBJECT)
        is_still = topic.record.leaders[log.partition].target == NO_LEADER
        return is_wanted and is_still and not self._moves.is_moving(log)

    async def _convert(self, log: Log) -> bool:
        """Bring a log to the other storage; return whether it is there."""
        copy: LogCopy = (
            LocalCopy(self._broker, self._sharing.engine, log)
            if log.is_shared
            else self._sharing.copy_to_bucket(log)
        )
        outcome: bool | None = False
        try:
            await self._cleaner.pause_and_wait(log.topic, log.partition)
            await copy.copy()
            outcome = None  # an error may come after the commit
            outcome = await self._changes.run(lambda: self._exchange(log, copy))
        finally:
            self._cleaner.resume(log.topic, log.partition)
            await copy.discard(is_needed=outcome is not False)
        return bool(outcome)

    async def _exchange(self, log: Log, copy: LogCopy) -> bool | None:
        """Close a log, and let the other storage have it, within a change.

        Returns whether it does, None if that is not known.
        """
        if not self._is_due(log):  # its topic was deleted, or it moves
            return False
        loop, key = asyncio.get_running_loop(), (log.topic_id, log.partition)
        if log.is_shared:  # an upload may take long
            await self._sharing.uploads.release([key])
        begun_s, is_known = loop.time(), True
        # From here to the outcome memory follows no change: it would open the log again.
        self._topics.give_up([log])
        epochs = {} if log.is_shared else {log: log.leader_epoch + 1}
        closed = await self._closing.close([log], epochs)
        if log in closed:
            if not log.is_shared:
                self._topics.note_left({key: closed[log]})
            try:
                finishing = copy.finish(self._own_id, closed[log])
                change = await asyncio.wait_for(finishing, _PATIENCE_S)
                if copy.left is not None:
                    self._topics.note_left({key: copy.left})
                is_known = await self._closing.commit(change)
            except (StorageError, ObjectStoreError) as error:
                self._obstacle.note(error)
            except TimeoutError:
                self._obstacle.note(BucketFailure(f"{log.name}: the rest takes too long to copy"))
        if not self._topics.has_resigned:
            await self._topics.restore()
        if not is_known:
            return None
        leader = self._topics.leader_of(*key)
        is_done = leader is None or leader.is_shared != log.is_shared
        if is_done:
            if log.is_shared:
                await asyncio.to_thread(self._sharing.logs.home.discard, list(closed))
            else:
                await self._closing.remove(closed)
            ms = round((loop.time() - begun_s) * 1000)
            logger.info("changed the storage log=%s to=%s bytes=%d not_served_ms=%d", log.name,
                        LOCAL if log.is_shared else OBJECT, log.size_bytes, ms)  # fmt: skip
        return is_done
