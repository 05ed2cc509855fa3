"""Writes the markers that end transactions in partitions, and waits until they are durable.

Invariants:

1. After `write_all` each partition has its marker, on the disk where flushes are waited for, or a
   problem.
2. The markers of one call are appended in the order in which they were given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from typing import TYPE_CHECKING

from odradek.broker.coordination.runtime import Answer
from odradek.broker.durability.own_appends import Durability
from odradek.broker.errors import EXPLAINED, Explained, Refusal, as_value
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.registry import Topics
from odradek.broker.transactions.state import TopicPartition
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from odradek.storage.transactions import Marker

if TYPE_CHECKING:
    from odradek.broker.transactions.remote import RemoteTransactions

# Some 5 ms of appends, after which the event loop serves others.
_APPENDS_MAX = 128

# One error for all partitions: an error that was raised keeps its traceback, 500 bytes for four
# bytes of a request.
_UNKNOWN = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

Problems = dict[TopicPartition, Explained]


class MarkerWriter:
    """Appends markers to the logs of this broker, and has others append theirs.

    The coordinator of groups appends the markers of committed offsets, and then applies the
    offsets or drops them.
    """

    def __init__(
        self,
        topics: Topics,
        durability: Durability,
        end_offsets: Callable[[int, Marker], Answer[ErrorCode]],
        remote: RemoteTransactions | None = None,
    ) -> None:
        """`end_offsets` appends a marker to a partition of __consumer_offsets.

        `remote` is there where other brokers may lead partitions.
        """
        self._topics, self._durability, self._end_offsets = topics, durability, end_offsets
        self._remote = remote

    async def write(self, marker: Marker, partitions: Iterable[TopicPartition]) -> Problems:
        """Write a marker to partitions, those of other brokers included; return the problems."""
        if self._remote is None:
            (problems,) = await self.write_all([(marker, partitions)])
            return problems
        own: list[TopicPartition] = []
        others: list[TopicPartition] = []
        for one in partitions:
            (own if self._remote.leader_of(one) is None else others).append(one)
        (problems,), theirs = await asyncio.gather(
            self.write_all([(marker, own)]), self._remote.write(marker, others)
        )
        return {**problems, **theirs}

    async def write_all(
        self, asked: Iterable[tuple[Marker, Iterable[TopicPartition]]]
    ) -> list[Problems]:
        """Write markers in their order, then wait for the disk once; return the problems of each.

        Waiting for each took 240 us of the event loop, for 25 bytes of a request.
        """
        begun = [await self._begin(marker, partitions) for marker, partitions in asked]
        logs = {log: None for one in begun for log in one.logs.values()}
        to_flush = [log for log in logs if self._durability.must_wait(log)]
        has_failed = bool(to_flush) and not await self._flush(to_flush)
        for one in begun:
            if has_failed:
                for partition, log in one.logs.items():
                    if log.failure is not None:
                        one.problems[partition] = log.failure
            for partition, answer in one.offsets.items():
                code = await answer if isinstance(answer, Awaitable) else answer
                if code is not ErrorCode.NONE:
                    one.problems[partition] = Refusal(code)
        return [one.problems for one in begun]

    async def _begin(self, marker: Marker, partitions: Iterable[TopicPartition]) -> _Begun:
        """Append a marker to partitions, with pauses: they may be all partitions of the broker."""
        begun = _Begun()
        for count, one in enumerate(paced(partitions), start=1):
            if count % _APPENDS_MAX == 0:
                await asyncio.sleep(0)
            try:
                log = self._log(one)
                if log is None:
                    begun.problems[one] = _UNKNOWN
                elif one.topic == topic_names.CONSUMER_OFFSETS:
                    begun.offsets[one] = self._end_offsets(one.partition, marker)
                else:
                    self._append(marker, log)
                    begun.logs[one] = log
            except EXPLAINED as error:
                begun.problems[one] = as_value(error)
        return begun

    def _log(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log, None when there is none. Raises StorageError."""
        topic = self._topics.get(partition.topic)
        return topic.log(partition.partition) if topic is not None else None

    def _append(self, marker: Marker, log: Log) -> None:
        try:
            log.append_marker(marker)
        except StorageError as error:
            self._durability.on_refused(log, error)
            raise

    async def _flush(self, logs: Iterable[Log]) -> bool:
        """Wait until logs are durable; return whether all are."""
        try:
            await self._durability.group_commit.flush(logs)
        except StorageError:
            return False
        return True


@dataclass(slots=True)
class _Begun:
    """An appended marker: its logs, the awaited answers for offsets, and the problems."""

    problems: Problems = field(default_factory=dict)
    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    offsets: dict[TopicPartition, Answer[ErrorCode]] = field(default_factory=dict)
