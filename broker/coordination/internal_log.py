"""The broker's own topics as the coordinators see them: append records, replay them.

Records are appended like those of a producer: Kafka's tools can read them, and the cleaner
compacts them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from odradek.broker.coordination.effects import Producer
from odradek.broker.coordination.seams import KeyValue, StoredBatch
from odradek.broker.durability.own_appends import Durability
from odradek.broker.errors import EXPLAINED
from odradek.broker.topics.registry import Topics
from odradek.broker.topics.topic import Topic
from odradek.protocol.batch_records import DECOMPRESSED_MAX_BYTES, record_section
from odradek.protocol.batches import MAGIC, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Record, encode_batch
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ProtocolError
from odradek.protocol.key_values import key_values, key_values_in_pieces
from odradek.storage.errors import StorageError, StoreFailure
from odradek.storage.log import Log
from odradek.storage.transactions import Marker, read_marker

logger = logging.getLogger(__name__)

_FETCH_RETRY_S = 1.0
# When records that nobody waits for are flushed, with all others of their log by then.
_UNAWAITED_FLUSH_MS = 100

# A batch that is larger, or is compressed, is replayed in pieces of _PIECE_RECORDS records.
_WHOLE_BYTES_MAX = 1 << 20
_PIECE_RECORDS = 2_000
# Batches of coordinators unpack to ten or twenty times their size. A client with the right to
# write here may pack 60 MiB into 800 bytes: little of that is replayed from one log.
_UNPACKED_FREE_BYTES = 64 << 20
_UNPACKED_RATIO_MAX = 100
# Limit of a wrapper's content in message formats 0 and 1: it is decoded in one piece.
_OLD_BYTES_MAX = 16 << 20
# The first batches left out of a log get a line each; the others are counted.
_LOGGED_MAX = 10

_NOBODY = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class InternalLog:
    """One internal topic, created when it is first written to. The event loop owns it."""

    def __init__(
        self,
        topics: Topics,
        name: str,
        durability: Durability,
        *,
        partition_count: Callable[[], int],
        codec: Callable[[], Codec],
        now_ms: Callable[[], int],
    ) -> None:
        """`partition_count` and `codec` are those of the settings."""
        self._topics, self._name = topics, name
        self._durability = durability
        self._configured_count, self._codec = partition_count, codec
        self._now_ms = now_ms
        self._creation: asyncio.Task[None] | None = None
        # Appends that wait until the topic is created.
        self._held: list[tuple[Callable[[Topic], asyncio.Future[None]], asyncio.Future[None]]] = []

    @property
    def partition_count(self) -> int:
        """The number of partitions that the topic has, or will have once it is created."""
        topic = self._topics.get(self._name)
        return len(topic.partitions) if topic else self._configured_count()

    def leads(self, partition: int) -> bool:
        """Return whether this broker leads a partition, or would if there were the topic.

        Where brokers share the metadata, nobody leads it before.
        """
        topic = self._topics.get(self._name)
        if topic is None:
            return not self._topics.is_shared
        return partition < len(topic.partitions) and topic.other_leader(partition) is None

    async def ready(self) -> Topic:
        """Return the topic, creating it if needed; raises errors that broker.errors explains."""
        return await self._topics.internal(self._name)

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        producer: Producer | None = None,
        *,
        is_awaited: bool = True,
    ) -> asyncio.Future[None]:
        """Append records as one batch; the future is done once they are durable enough.

        The future fails with an error that broker.errors explains. With a producer the records
        are part of its transaction. Without `is_awaited` they reach the disk somewhat later,
        unless the log is shared.
        """
        return self._when_created(
            partial(self._append, partition, records, producer, is_awaited)
        )

    def append_marker(self, partition: int, marker: Marker) -> asyncio.Future[None]:
        """Append the end of a producer's transaction; the future is like that of `append`."""
        return self._when_created(
            lambda topic: self._write(topic, partition, lambda log: log.append_marker(marker))
        )

    async def fetch(self, partition: int) -> None:
        """Have a partition on the disk: replay() does not wait for the bucket.

        While the object store does not answer it tries again.
        """
        topic = self._topics.get(self._name)
        with suppress(StorageError):  # replay() meets the error, and reports it
            log = topic.log(partition) if topic else None
            while log is not None and log.is_shared and not log.is_closed:
                try:
                    return await asyncio.to_thread(log.fetch)
                except StoreFailure as error:
                    logger.error("wait to load %s-%d: %s", self._name, partition, error)
                    await asyncio.sleep(_FETCH_RETRY_S)

    def replay(self, partition: int) -> Iterator[StoredBatch | Marker]:
        """Read a partition from its beginning, waiting for the disk.

        A batch that cannot be read is left out, with an error in the broker's log. Raises the
        StorageError of a partition that is offline: it is not empty.
        """
        topic = self._topics.get(self._name)
        log = topic.log(partition) if topic else None
        if log is not None:
            yield from stored(log)

    def _when_created(
        self, append: Callable[[Topic], asyncio.Future[None]]
    ) -> asyncio.Future[None]:
        topic = self._topics.get(self._name)
        if topic is not None and not self._held:
            return append(topic)
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((append, held))
        if self._creation is None:
            self._creation = asyncio.get_running_loop().create_task(self._create())
        return held

    def leader_epoch(self, partition: int) -> int:
        """Return the leader epoch of a partition, 0 when it is unknown."""
        topic = self._topics.get(self._name)
        try:
            log = topic.log(partition) if topic else None
        except StorageError:  # its epoch is known all the same: markers with 0 would be refused
            leaders = topic.record.leaders if topic else ()
            return leaders[partition].epoch if leaders else 0
        return log.leader_epoch if log else 0

    def _append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        producer: Producer | None,
        is_awaited: bool,
        topic: Topic,
    ) -> asyncio.Future[None]:
        now_ms = self._now_ms()
        made = [Record(at, now_ms, key, value) for at, (key, value) in enumerate(records)]
        writer = producer or _NOBODY
        batch = encode_batch(
            made,
            codec=self._codec(),
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch,
            transactional=producer is not None,
        )
        return self._write(
            topic,
            partition,
            lambda log: log.append(batch, now_ms=now_ms, from_client=False),
            is_awaited=is_awaited,
        )

    def _write(
        self,
        topic: Topic,
        partition: int,
        write: Callable[[Log], object],
        *,
        is_awaited: bool = True,
    ) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            log = topic.log(partition)
            assert log is not None, "records go where there is a partition"
        except StorageError as error:
            done.set_exception(error)
            return done
        try:
            write(log)
        except StorageError as error:
            self._durability.on_refused(log, error)
            done.set_exception(error)
            return done
        if self._durability.must_wait(log):
            if is_awaited or log.is_shared:
                return self._durability.group_commit.flush([log])
            self._durability.group_commit.flush_within(log, _UNAWAITED_FLUSH_MS)
        done.set_result(None)
        return done

    async def _create(self) -> None:
        """Create the topic, then make the appends that were held back, in order."""
        try:
            topic = await self.ready()
        except EXPLAINED as error:
            logger.error("could not create topic=%s: %s", self._name, error)
            for _, held in self._held:
                if not held.done():
                    held.set_exception(error)
        else:
            for append, held in self._held:
                _forward(append(topic), held)
        self._held = []
        self._creation = None


def stored(log: Log) -> Iterator[StoredBatch | Marker]:
    """Read a log from its beginning as coordinators do.

    A large batch comes in pieces, and the caller may let others run between them. A batch that
    cannot be read, or that unpacks to far more than coordinators write, is left out with an error
    in the broker's log.
    """
    free = _UNPACKED_FREE_BYTES
    left_out = 0
    for header, data in log.batches(log.log_start_offset):
        if header.is_control:
            marker = read_marker(header, data)
            if marker is not None:
                yield marker
            continue
        fair = _UNPACKED_RATIO_MAX * header.size_bytes
        try:
            if header.magic == MAGIC and (
                header.codec is not Codec.NONE or header.size_bytes > _WHOLE_BYTES_MAX
            ):
                limit = max(min(fair + free, DECOMPRESSED_MAX_BYTES), header.size_bytes)
                section = bytes(record_section(data, 0, header, limit))
                free -= max(len(section) - fair, 0)
                for piece in key_values_in_pieces(section, header.count, _PIECE_RECORDS):
                    passed_over = min(_PIECE_RECORDS, header.count) - len(piece)
                    yield StoredBatch(piece, header.producer_id, passed_over)
            else:
                limit = max(min(fair, _OLD_BYTES_MAX), header.size_bytes)
                records = key_values(header, data, limit)
                yield StoredBatch(records, header.producer_id)
        except ProtocolError as error:
            left_out += 1
            if left_out <= _LOGGED_MAX:
                logger.error(
                    "left out a batch log=%s base=%d error=%s",
                    log.name, header.base_offset, error,
                )  # fmt: skip
    if left_out > _LOGGED_MAX:
        logger.error("left out %d more batches log=%s", left_out - _LOGGED_MAX, log.name)


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
