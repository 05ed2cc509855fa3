"""Deletes old records of share groups' state.

Records that precede the last snapshots of all share-partitions are never read again.

Kafka's sources: ShareCoordinatorService.setupRecordPruning, ShareCoordinatorOffsetsManager.
"""

from __future__ import annotations

import asyncio
import logging

from odradek.broker.errors import EXPLAINED
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.state_records import ShareSnapshot, decode_record
from odradek.broker.topics.names import SHARE_GROUP_STATE
from odradek.broker.topics.registry import Topics
from odradek.broker.topics.topic import Topic
from odradek.protocol.errors import ProtocolError
from odradek.protocol.legacy import iterate_stored
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

_BATCHES_PER_SLICE = 64


class StatePruner:
    """Prunes the partitions, and remembers the end of each; the event loop owns it."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._seen: dict[int, int] = {}

    async def prune(self) -> None:
        """Move the starts of all partitions that have grown."""
        topic = self._topics.get(SHARE_GROUP_STATE)
        for partition in range(len(topic.partitions) if topic else 0):
            try:
                await self._prune(topic, partition)
            except EXPLAINED as error:
                logger.warning("failed to prune %s-%d: %s", SHARE_GROUP_STATE, partition, error)

    async def _prune(self, topic: Topic | None, partition: int) -> None:
        log = topic.log(partition) if topic else None
        if log is None or self._seen.get(partition) == log.log_end_offset:
            return
        if log.is_shared:
            await asyncio.to_thread(log.fetch)
        # A crash may lose a snapshot that is not on the disk yet; the former one then counts.
        end = min(log.recovery_point, log.high_watermark)
        start = min((await _last_snapshots(log, end)).values(), default=end)
        self._seen[partition] = log.log_end_offset if end == log.log_end_offset else -1
        if start > log.log_start_offset:
            log.advance_start_offset(start)
            logger.info("pruned log=%s start=%d", log.name, start)


async def _last_snapshots(log: Log, end: int) -> dict[SharePartitionKey, int]:
    """Return the offset of the last snapshot of each share-partition, before an end."""
    found: dict[SharePartitionKey, int] = {}
    for number, (header, data) in enumerate(log.batches(log.log_start_offset)):
        if header.base_offset >= end:
            break
        if number % _BATCHES_PER_SLICE == 0:
            await asyncio.sleep(0)
        for record in iterate_stored(data):
            try:
                read = decode_record(record.key or b"", record.value)
            except ProtocolError:
                continue  # Loading has logged it.
            if isinstance(read, ShareSnapshot):
                found.pop(read.key, None)
                if read.state is not None:
                    found[read.key] = record.offset
    return found
