"""Hands partitions to other brokers of this host, which open the same files.

    pause the cleaner    no thread writes into the directory any more; the partition is served
    give up              requests are refused as by a broker that does not lead the partition
    flush, close         all appended records are durable and answered; the log is as after a stop
    commit               the catalog names the new leader, and how the log was left
    follow               this broker and the others see the change; the new leader opens the log

When the catalog refuses, or the new leader has gone, this broker opens the log again. A leader
changes only by its own hand: nobody else does this for a broker that lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from odradek.broker.durability.group_commit import GroupCommit
from odradek.broker.errors import MetadataError, Refusal
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.members import NO_LEADER, Brokers, Leader
from odradek.broker.topics.following import FollowingTopics
from odradek.broker.topics.partitions import Partitions
from odradek.broker.topics.placement import fair_targets
from odradek.protocol.errors import ErrorCode
from odradek.storage.checkpoints import LeftLog
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from odradek.storage.shared_directory import SharedLogDirectory

logger = logging.getLogger(__name__)

# Partitions that change hands together: none of them is served until all are closed.
_AT_ONCE = 8
_RETRY_S = 0.5

Partition = tuple[bytes, int]


class Store(Protocol):
    """The catalog."""

    async def hand_over(
        self, own_id: int, given: Mapping[Partition, tuple[int, LeftLog]]
    ) -> Sequence[Partition]:
        """Name other leaders of partitions whose logs are closed; return those that changed."""


    async def set_targets(self, targets: Mapping[Partition, int]) -> None:
        """Note the brokers that are to lead partitions."""

    async def wait_for_changes(self) -> None:
        """Return once no change of this broker is under way, also one whose answer is lost."""


class Cleaner(Protocol):
    """The cleaner's threads."""

    async def pause_and_wait(self, topic: str, partition: int) -> None:
        """Let no thread write into a log's directory."""

    def resume(self, topic: str, partition: int) -> None:
        """Undo one call of pause_and_wait()."""


class Moves(Protocol):
    """The moves of logs between log directories."""

    def is_moving(self, log: Log) -> bool:
        """Return whether a log moves."""


class Handovers:
    """Hands over the partitions that others are to lead. The event loop owns it."""

    def __init__(
        self,
        store: Store,
        brokers: Brokers,
        topics: FollowingTopics,
        partitions: Partitions,
        changes: Changes,
        group_commit: GroupCommit,
        cleaner: Cleaner,
        moves: Moves,
    ) -> None:
        self._store, self._brokers, self._topics = store, brokers, topics
        self._partitions, self._changes, self._group_commit = partitions, changes, group_commit
        self._cleaner, self._moves = cleaner, moves
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Begin to hand over the partitions that have another broker as their target."""
        if self._task is None and self._due():
            self._task = start_task("hand over partitions", self._run())

    async def hand_over_all(self, must_stop: Callable[[], bool]) -> None:
        """Hand over all partitions, as far as there are brokers to take them."""
        targets = self._fair_targets(without=self._brokers.own.node_id)
        given = {
            log: targets[key]
            for topic in self._topics
            for log in topic.logs
            if (key := (topic.topic_id, log.partition)) in targets
        }
        count = 0
        for chunk in _chunks(list(given.items())):
            if not must_stop():
                count += await self._hand_over(dict(chunk))
        if given:
            logger.info("handed over partitions=%d of=%d", count, len(given))

    def refuse(self, leader: Leader, node_id: int) -> None:
        """Raise Refusal for a broker that cannot lead a partition with such a leader."""
        member = self._brokers.get(node_id)
        if member is None or member.host != leader.host:
            message = f"Broker {node_id} has other log directories: its host has no copy."
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)

    async def assign(self, targets: Mapping[Partition, int]) -> None:
        """Let partitions move to brokers, and return once that is stored; they move later.

        NO_LEADER ends a move that has not begun. Raises MetadataError.
        """

        async def change() -> None:
            await self._store.set_targets(targets)
            self._topics.note_targets(targets)

        await self._changes.run(change)
        self.look()

    async def rebalance(self, without: int | None = None) -> int:
        """Let brokers of one host lead equal shares; return the number of moves that begin.

        With `without` that broker leads nothing afterwards. Raises MetadataError.
        """
        targets = self._fair_targets(without)
        if targets:
            await self.assign(targets)
        return len(targets)

    async def close(self) -> None:
        """Stop; a chunk that has begun is finished."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _fair_targets(self, without: int | None) -> dict[Partition, int]:
        return fair_targets((topic.record for topic in self._topics), self._brokers, without)

    # --- parts ------------------------------------------------------------------------------

    def _neighbours(self) -> list[int]:
        """Return the brokers of this host that are alive."""
        host = self._brokers.own.host
        return [one.node_id for one in self._brokers if one.host == host]

    def _due(self) -> dict[Log, int]:
        """Return the logs that are to be handed over, with their new leaders."""
        neighbours = self._neighbours()
        return {
            log: target
            for topic in self._topics
            if topic.record.leaders
            for log in topic.logs
            if (target := topic.record.leaders[log.partition].target) != NO_LEADER
            and target in neighbours
            and target != self._brokers.own.node_id
        }

    async def _run(self) -> None:
        count = 0
        while due := self._due():
            (first, *_) = _chunks(list(due.items()))
            changed = await self._hand_over(dict(first))
            count += changed
            if not changed:
                await asyncio.sleep(_RETRY_S)
        logger.info("handed over partitions=%d", count)
        self._task = None

    async def _hand_over(self, given: Mapping[Log, int]) -> int:
        """Hand over some logs; return the number of those that have changed hands."""
        ready = {log: one for log, one in given.items() if not self._moves.is_moving(log)}
        try:
            await asyncio.gather(
                *(self._cleaner.pause_and_wait(log.topic, log.partition) for log in ready)
            )
            # So that little is left to do while the partitions are not served.
            await self._flush(list(ready))
            return await self._changes.run(lambda: self._exchange(ready))
        finally:
            for log in ready:
                self._cleaner.resume(log.topic, log.partition)

    async def _exchange(self, given: Mapping[Log, int]) -> int:
        """Close logs, and let others lead their partitions, within a change."""
        # Meanwhile the partition may have been deleted, or its disk may have failed.
        logs = [log for log in given if not log.is_closed and not self._moves.is_moving(log)]
        self._topics.give_up(logs)
        closed = await self._close(logs)
        left = {(log.topic_id, log.partition): one for log, one in closed.items()}
        targets = {(log.topic_id, log.partition): given[log] for log in closed}
        try:
            await self._store.hand_over(
                self._brokers.own.node_id, {key: (targets[key], one) for key, one in left.items()}
            )
        except MetadataError as error:
            logger.error("could not hand over partitions: %s", error)
            is_known = await self._learn_outcome(in_doubt=True)
        else:
            is_known = await self._learn_outcome(in_doubt=False)
        kept = {key: one for key, one in left.items() if self._topics.leads(*key)}
        await self._topics.take_back(kept if is_known else left)
        return len(left) - len(kept) if is_known else 0

    async def _learn_outcome(self, *, in_doubt: bool) -> bool:
        """Follow the catalog to the outcome of a handover; return whether it is known.

        A change whose answer is lost may be made all the same: a log that another broker leads by
        then must not be opened here. So nothing goes on before the catalog answers, or the session
        of this broker has ended, which gives everything up.
        """
        assert self._changes.follow is not None, "brokers that share a host share a catalog"
        while not self._topics.has_resigned:
            try:
                if in_doubt:
                    await self._store.wait_for_changes()
                await self._changes.follow()
            except MetadataError as error:
                logger.warning("wait for the catalog: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                return True
        return False

    async def _flush(self, logs: Sequence[Log]) -> None:
        try:
            await self._group_commit.flush(logs)
        except StorageError as error:
            logger.error("could not flush a log, not handed over: %s", error)

    async def _close(self, logs: Sequence[Log]) -> dict[Log, LeftLog]:
        """Make logs durable and close them; return how they were left.

        A log whose disk fails is not among them, and is offline.
        """
        await self._flush(logs)
        loop = asyncio.get_running_loop()
        left: dict[Log, LeftLog] = {}
        failures: dict[Log, StorageError] = {}
        for home in self._partitions.directories:
            assert isinstance(home, SharedLogDirectory), "the directories of workers are shared"
            own = [log for log in logs if log.directory.parent == home.path and not log.is_closed]
            found = await loop.run_in_executor(None, _close_all, home, own, failures)
            for log in found:
                home.forget_left(log)
            left |= found
            try:
                await loop.run_in_executor(None, home.store, home.take_checkpoints())
            except StorageError as error:  # the next round tries again
                logger.error("could not store checkpoints path=%s: %s", home.path, error)
        for log, failure in failures.items():
            logger.error("could not close a log, not handed over log=%s: %s", log.name, failure)
            log.failure = failure
            self._group_commit.on_failed(log, failure)
        return left


def _close_all(
    home: SharedLogDirectory, logs: Iterable[Log], failures: dict[Log, StorageError]
) -> dict[Log, LeftLog]:
    """Close logs; runs in a thread."""
    left = {}
    for log in logs:
        try:
            left[log] = home.hand_over(log)
        except StorageError as error:
            failures[log] = error
    return left


def _chunks(given: Sequence[tuple[Log, int]]) -> Iterator[Sequence[tuple[Log, int]]]:
    for at in range(0, len(given), _AT_ONCE):
        yield given[at : at + _AT_ONCE]
