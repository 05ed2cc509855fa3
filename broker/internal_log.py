"""The broker's own topics as the coordinators see them: append records, replay them.

Records go into `__consumer_offsets` as a producer's would, so that Kafka's tools read them and
the cleaner compacts them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from broker.decided import KeyValue, decided
from broker.errors import EXPLAINED
from broker.group_commit import GroupCommit
from broker.topic import Topic
from broker.topics import Topics
from protocol.batches import Record, encode_batch
from protocol.compression import Codec
from storage.errors import StorageError
from storage.log import Log

logger = logging.getLogger(__name__)


class InternalLog:
    """One internal topic, created when it is first written to. The event loop owns it."""

    def __init__(
        self,
        topics: Topics,
        name: str,
        group_commit: GroupCommit,
        *,
        partition_count: Callable[[], int],
        waits_for_disk: Callable[[], bool],
        codec: Callable[[], Codec],
        now_ms: Callable[[], int],
        on_refused: Callable[[Log, StorageError], None] = lambda log, error: None,
    ) -> None:
        """`on_refused` hears of a log that could not be appended to."""
        self._topics, self._name = topics, name
        self._group_commit = group_commit
        self._configured_count = partition_count
        self._waits_for_disk = waits_for_disk
        self._codec = codec
        self._now_ms, self._on_refused = now_ms, on_refused
        self._creation: asyncio.Task[None] | None = None
        self._held: list[tuple[int, Sequence[KeyValue], asyncio.Future[None]]] = []

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or will have once it is created."""
        topic = self._topics.get(self._name)
        return len(topic.partitions) if topic else self._configured_count()

    async def ready(self) -> Topic:
        """Return the topic, created if need be; raises what broker.errors explains."""
        return await self._topics.internal(self._name)

    def append(self, partition: int, records: Sequence[KeyValue]) -> asyncio.Future[None]:
        """Append records as one batch; the future is done once they are durable enough.

        It fails with an error that broker.errors explains.
        """
        topic = self._topics.get(self._name)
        if topic is not None and not self._held:
            return self._append(topic, partition, records)
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((partition, records, held))
        if self._creation is None:
            self._creation = asyncio.get_running_loop().create_task(self._create())
        return held

    def replay(self, partition: int) -> Iterator[KeyValue]:
        """Read every record of a partition, oldest first, waiting for the disk.

        Records of a transaction come when it is committed, others not.
        """
        topic = self._topics.get(self._name)
        try:
            log = topic.log(partition) if topic else None
        except StorageError as error:
            logger.error("could not read %s-%d: %s", self._name, partition, error)
            return iter(())
        if log is None:
            return iter(())
        return decided(log.batches(log.log_start_offset), log.name)

    def leader_epoch(self, partition: int) -> int:
        """Return the term in which a partition is written, 0 when it cannot be told."""
        topic = self._topics.get(self._name)
        try:
            log = topic.log(partition) if topic else None
        except StorageError:
            return 0
        return log.leader_epoch if log else 0

    def _append(
        self, topic: Topic, partition: int, records: Sequence[KeyValue]
    ) -> asyncio.Future[None]:
        now_ms = self._now_ms()
        batch = encode_batch(
            [Record(at, now_ms, key, value) for at, (key, value) in enumerate(records)],
            codec=self._codec(),
        )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            log = topic.log(partition)
            assert log is not None, "records go where there is a partition"
        except StorageError as error:
            done.set_exception(error)
            return done
        try:
            log.append(batch, now_ms=now_ms, from_client=False)
        except StorageError as error:
            self._on_refused(log, error)
            done.set_exception(error)
            return done
        if self._waits_for_disk():
            return self._group_commit.flush([log])
        done.set_result(None)
        return done

    async def _create(self) -> None:
        """Create the topic, then append what was held back meanwhile, in order."""
        try:
            topic = await self.ready()
        except EXPLAINED as error:
            logger.error("could not create topic=%s: %s", self._name, error)
            for _, _, held in self._held:
                if not held.done():
                    held.set_exception(error)
        else:
            for partition, records, held in self._held:
                _forward(self._append(topic, partition, records), held)
        self._held = []
        self._creation = None


def _forward(source: asyncio.Future[None], target: asyncio.Future[None]) -> None:
    def done(future: asyncio.Future[None]) -> None:
        error = future.exception()
        if target.done():
            return
        if error is None:
            target.set_result(None)
        else:
            target.set_exception(error)

    source.add_done_callback(done)
