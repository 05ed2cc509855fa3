"""Writes the markers that end transactions in partitions, and waits until they are durable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from broker import topic_names
from broker.coordination.runtime import Answer
from broker.errors import EXPLAINED, Explained, Refusal
from broker.group_commit import GroupCommit
from broker.topics import Topics
from broker.transactions.state import TopicPartition
from protocol.errors import ErrorCode
from storage.errors import StorageError
from storage.log import Log
from storage.transactions import Marker

Problems = dict[TopicPartition, Explained]


class MarkerWriter:
    """Appends markers to the logs of this node; the event loop owns it.

    Those of committed offsets are appended by the coordinator of groups, which then takes the
    offsets over or drops them.
    """

    def __init__(
        self,
        topics: Topics,
        group_commit: GroupCommit,
        end_offsets: Callable[[int, Marker], Answer[ErrorCode]],
        *,
        waits_for_disk: Callable[[], bool],
        on_refused: Callable[[Log, StorageError], None],
    ) -> None:
        """`on_refused` hears of a log that could not be appended to."""
        self._topics, self._group_commit = topics, group_commit
        self._end_offsets = end_offsets
        self._waits_for_disk, self._on_refused = waits_for_disk, on_refused

    async def write(self, marker: Marker, partitions: Iterable[TopicPartition]) -> Problems:
        """Write a marker to partitions; return what was in the way of some."""
        problems: Problems = {}
        logs: dict[TopicPartition, Log] = {}
        offsets: dict[TopicPartition, Answer[ErrorCode]] = {}
        for one in partitions:
            try:
                log = self._log(one)
                if one.topic == topic_names.CONSUMER_OFFSETS:
                    offsets[one] = self._end_offsets(one.partition, marker)
                else:
                    self._append(marker, log)
                    logs[one] = log
            except EXPLAINED as error:
                problems[one] = error
        if logs and self._waits_for_disk():
            problems |= await self._flush(logs)
        for one, answer in offsets.items():
            code = await answer if isinstance(answer, Awaitable) else answer
            if code is not ErrorCode.NONE:
                problems[one] = Refusal(code)
        return problems

    def _log(self, partition: TopicPartition) -> Log:
        """Return a partition's log. Raises Refusal when there is none, and StorageError."""
        topic = self._topics.get(partition.topic)
        log = topic.log(partition.partition) if topic is not None else None
        if log is None:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return log

    def _append(self, marker: Marker, log: Log) -> None:
        try:
            log.append_marker(marker)
        except StorageError as error:
            self._on_refused(log, error)
            raise

    async def _flush(self, logs: dict[TopicPartition, Log]) -> Problems:
        try:
            await self._group_commit.flush(logs.values())
        except StorageError:
            return {one: log.failure for one, log in logs.items() if log.failure is not None}
        return {}
