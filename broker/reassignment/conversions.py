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
from odradek.broker.shared.bucket_copy import BucketCopy
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

    def __init__(
        self, broker: Parts, store: Store, sharing: Sharing
    ) -> None:
        self._broker, self._sharing, self._closing = broker, sharing, Closing(broker, store)
        self._brokers, self._topics = broker.brokers, broker.topics
        self._changes, self._cleaner, self._moves = broker.changes, broker.cleaner, broker.moves
        self._task: asyncio.Task[None] | None = None
        # The last error, "" after a success.
        self.trouble = ""

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
        return [f"the storage of partitions stays: {self.trouble}"] if self.trouble else []

    # --- parts ------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            while (log := next(self._due(), None)) is not None:
                try:
                    is_done = await self._convert(log)
                    self.trouble = ""
                except (StorageError, ObjectStoreError) as error:
                    is_done, self.trouble = False, f"{log.name}: {error}"
                    logger.error("could not change the storage log=%s: %s", log.name, error)
                if not is_done:
                    await asyncio.sleep(_RETRY_S)
            self.trouble = ""

    def _due(self) -> Iterator[Log]:
        for topic in self._topics:
            is_object = topic.config.odradek_storage == OBJECT
            for log in topic.logs:
                if log.is_shared != is_object and self._is_due(log):
                    yield log

    def _is_due(self, log: Log) -> bool:
        leader = self._topics.leader_of(log.topic_id, log.partition)
        is_still = leader is not None and leader.target == NO_LEADER
        return is_still and not (log.is_closed or self._moves.is_moving(log))

    async def _convert(self, log: Log) -> bool:
        """Bring a log to the other storage; return whether it is there."""
        copy: BucketCopy | LocalCopy = (
            LocalCopy(self._broker, self._sharing.engine, log)
            if log.is_shared
            else self._sharing.copy_to_bucket(log)
        )
        outcome = None
        try:
            await self._cleaner.pause_and_wait(log.topic, log.partition)
            await copy.copy()
            outcome = await self._changes.run(lambda: self._exchange(log, copy))
        except (StorageError, ObjectStoreError):
            outcome = False
            raise
        finally:
            self._cleaner.resume(log.topic, log.partition)
            await copy.discard(is_needed=outcome is not False)
        return bool(outcome)

    async def _exchange(self, log: Log, copy: BucketCopy | LocalCopy) -> bool | None:
        """Close a log, and let the other storage have it, within a change.

        Returns whether it does, None if that is not known.
        """
        if not self._is_due(log):  # its topic was deleted, or it moves
            return False
        loop, key = asyncio.get_running_loop(), (log.topic_id, log.partition)
        begun_s, is_known, failure = loop.time(), True, None
        # From here to the outcome memory follows no change: it would open the log again.
        self._topics.give_up([log])
        epochs = {} if log.is_shared else {log: log.leader_epoch + 1}
        closed = await self._closing.close([log], epochs)
        if log in closed:
            if log.is_shared:
                await self._sharing.uploads.release([key])
            else:
                self._topics.note_left({key: closed[log]})
            try:
                change = await asyncio.wait_for(
                    copy.finish(self._brokers.own.node_id, closed[log]), _PATIENCE_S
                )
                if isinstance(copy, LocalCopy) and copy.left is not None:
                    self._topics.note_left({key: copy.left})
                is_known = await self._closing.commit(change)
            except (StorageError, ObjectStoreError) as error:
                failure = error
            except TimeoutError:
                failure = BucketFailure("the rest of the log was not copied in time")
        if not self._topics.has_resigned:
            await self._topics.restore()
        if failure is not None:
            raise failure
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
