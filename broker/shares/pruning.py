"""Old records of share groups' state go: what lies before the last snapshot of every
share-partition is not read again.

Kafka's sources: ShareCoordinatorService.setupRecordPruning, ShareCoordinatorOffsetsManager.
"""

from __future__ import annotations

import asyncio
import logging

from broker.errors import EXPLAINED
from broker.shares.key import SharePartitionKey
from broker.shares.state_records import Snapshot, decode_record
from broker.topics.names import SHARE_GROUP_STATE
from broker.topics.registry import Topics
from broker.topics.topic import Topic
from protocol.errors import ProtocolError
from protocol.legacy import iterate_stored
from storage.log import Log

logger = logging.getLogger(__name__)

_BATCHES_PER_SLICE = 64


class StatePruner:
    """Knows how far it has looked at each partition; the event loop owns it."""

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
        # What is not on the disk yet may be lost with a crash, and then its elder counts again.
        end = min(log.recovery_point, log.high_watermark)
        start = min((await _last_snapshots(log, end)).values(), default=end)
        self._seen[partition] = log.log_end_offset if end == log.log_end_offset else -1
        if start > log.log_start_offset:
            log.advance_start_offset(start)
            logger.info("pruned log=%s start=%d", log.name, start)


async def _last_snapshots(log: Log, end: int) -> dict[SharePartitionKey, int]:
    """Find where the last snapshot of each share-partition lies, before an offset."""
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
                continue  # loading has told of it
            if isinstance(read, Snapshot):
                found.pop(read.key, None)
                if read.state is not None:
                    found[read.key] = record.offset
    return found
