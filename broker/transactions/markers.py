"""Writes the markers that end transactions in partitions, and waits until they are durable."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from broker.errors import EXPLAINED, Explained, Refusal
from broker.group_commit import GroupCommit
from broker.topics import Topics
from broker.transactions.state import TopicPartition
from protocol.errors import ErrorCode
from storage.errors import StorageError
from storage.log import Log
from storage.transactions import Marker

logger = logging.getLogger(__name__)


class MarkerWriter:
    """Appends markers to the logs of this node; the event loop owns it."""

    def __init__(
        self,
        topics: Topics,
        group_commit: GroupCommit,
        *,
        waits_for_disk: Callable[[], bool],
        on_refused: Callable[[Log, StorageError], None],
    ) -> None:
        """`on_refused` hears of a log that could not be appended to."""
        self._topics, self._group_commit = topics, group_commit
        self._waits_for_disk, self._on_refused = waits_for_disk, on_refused

    async def write(
        self, marker: Marker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Explained]:
        """Write a marker to partitions; return what was in the way of some."""
        problems: dict[TopicPartition, Explained] = {}
        logs: dict[TopicPartition, Log] = {}
        for one in partitions:
            try:
                logs[one] = self._append(marker, one)
            except EXPLAINED as error:
                problems[one] = error
        if logs and self._waits_for_disk():
            try:
                await self._group_commit.flush(logs.values())
            except StorageError:
                for one, log in logs.items():
                    if log.failure is not None:
                        problems[one] = log.failure
        return problems

    def _append(self, marker: Marker, partition: TopicPartition) -> Log:
        """Append a marker. Raises Refusal when there is no such partition, and StorageError."""
        topic = self._topics.get(partition.topic)
        log = topic.log(partition.partition) if topic is not None else None
        if log is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            log.append_marker(marker)
        except StorageError as error:
            self._on_refused(log, error)
            raise
        return log
