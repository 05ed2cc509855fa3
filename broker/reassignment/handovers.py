"""Hands partitions to other brokers, which then have their files.

    pause the cleaner    no thread writes into the directory any more; the partition is served
    give up              requests are refused as by a broker that does not lead the partition
    flush, close         all appended records are durable and answered; the log is as after a stop
    commit               the catalog names the new leader, and how the log was left
    follow               this broker and the others see the change; the new leader opens the log

A broker of this host opens the same files. One of another host has a copy (copies.py): the
partition is given up once the copy lacks little, and closed once it is complete; after the commit
this host's files are removed. A shared partition needs no copy: any broker builds its log from the
bucket and the catalog, once all its records are committed.

When the catalog refuses, or the new leader has gone, this broker opens the log again. A leader
changes only by its own hand: nobody else does this for a broker that lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from odradek.broker.catalog.hosts import hand_over
from odradek.broker.errors import MetadataError
from odradek.broker.ids import Partition
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.members import Leader
from odradek.broker.reassignment import closing
from odradek.broker.reassignment.closing import Closing
from odradek.broker.reassignment.followers import Followers
from odradek.broker.reassignment.parts import Parts
from odradek.broker.topics.placement import fair_targets
from odradek.broker.topics.states import Handover
from odradek.storage.checkpoints import LeftLog
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

# Partitions that change hands together: none of them is served until all are closed.
_AT_ONCE = 8
# Shared ones are closed by one commit.
_SHARED_AT_ONCE = 64
_RETRY_S = 0.5
# After a handover before a stop, clients hear the new leaders here; to those that
# find the connection closed another broker might still name this one.
_FAREWELL_S = 0.3
# How long partitions are not served while copies get their ends.
_COPY_PATIENCE_S = 3.0


class Store(closing.Store, Protocol):
    """The catalog."""

    async def set_targets(self, targets: Mapping[Partition, int]) -> None:
        """Note the brokers that are to lead partitions."""


class Handovers:
    """Hands over the partitions that others are to lead. The event loop owns it."""

    def __init__(self, broker: Parts, store: Store, followers: Followers) -> None:
        self._store, self._followers = store, followers
        self._brokers, self._topics, self._partitions = (
            broker.brokers, broker.topics, broker.partitions,
        )  # fmt: skip
        self._changes, self._closing = broker.changes, Closing(broker, store)
        self._cleaner, self._moves = broker.cleaner, broker.moves
        # Called when this broker has noted targets: it may be one itself.
        self.on_assigned: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def look(self) -> None:
        """Begin to hand over the partitions that have another broker as their target."""
        if self._task is None and not self._is_closed and self._due():
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
        shared = [one for one in given.items() if one[0].is_shared]
        local = [one for one in given.items() if not one[0].is_shared]
        for chunk in (*_chunks(local), *_chunks(shared, _SHARED_AT_ONCE)):
            if not must_stop():
                count += await self._hand_over(dict(chunk))
        if given:
            logger.info("handed over partitions=%d of=%d", count, len(given))
        if count:
            await asyncio.sleep(_FAREWELL_S)

    async def share_out(self) -> None:
        """Let all brokers lead equal shares of the shared partitions; this one has come.

        Not before it serves: the others hand over at once.
        """
        records = [topic.record for topic in self._topics]
        targets = {
            (topic_id, number): node_id
            for (topic_id, number), node_id in fair_targets(records, self._brokers).items()
            if (leader := self._topics.leader_of(topic_id, number)) and leader.is_shared
        }
        if targets:
            try:
                await self.assign(targets)
            except MetadataError as error:
                logger.warning("could not share out the shared partitions: %s", error)

    async def assign(self, targets: Mapping[Partition, int]) -> None:
        """Let partitions move to brokers, and return once that is stored; they move later.

        NO_LEADER ends a move that has not begun. Raises MetadataError.
        """

        async def change() -> None:
            await self._store.set_targets(targets)
            self._topics.note_targets(targets)

        await self._changes.run(change)
        self.look()
        self.on_assigned()

    async def close(self) -> None:
        """Stop for good; a chunk that has begun is finished."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _fair_targets(self, without: int) -> dict[Partition, int]:
        return fair_targets((topic.record for topic in self._topics), self._brokers, without)

    # --- parts ------------------------------------------------------------------------------

    def _due(self) -> dict[Log, int]:
        """Return the logs that can be handed over now, with their new leaders."""
        due: dict[Log, int] = {}
        for topic in self._topics:
            if not topic.record.leaders:
                continue
            for log in topic.logs:
                leader = topic.record.leaders[log.partition]
                target = self._brokers.get(leader.target)
                if target is None or target is self._brokers.own:
                    continue
                if self._is_at_hand(log, target.node_id) or self._followers.is_near(log, leader):
                    due[log] = target.node_id
        return due

    def _is_at_hand(self, log: Log, node_id: int) -> bool:
        """Return whether a broker can open a log: it has its directories, or needs none."""
        if log.is_shared:
            return True
        member = self._brokers.get(node_id)
        return member is not None and member.host == self._brokers.own.host

    async def _run(self) -> None:
        count = 0
        try:
            while due := self._due():
                here = {log: one for log, one in due.items() if self._is_at_hand(log, one)}
                (first, *_) = _chunks(list((here or due).items()))
                changed = await self._hand_over(dict(first))
                count += changed
                if not changed:
                    await asyncio.sleep(_RETRY_S)
            logger.info("handed over partitions=%d", count)
        finally:  # after a bug, the next `look` tries again
            self._task = None

    async def _hand_over(self, given: Mapping[Log, int]) -> int:
        """Hand over some logs; return the number of those that have changed hands."""
        ready = {log: one for log, one in given.items() if not self._moves.is_moving(log)}
        try:
            await asyncio.gather(
                *(self._cleaner.pause_and_wait(log.topic, log.partition) for log in ready)
            )
            # So that little is left to do while the partitions are not served.
            await self._closing.flush(list(ready))
            return await self._changes.run(lambda: self._exchange(ready))
        finally:
            for log in ready:
                self._cleaner.resume(log.topic, log.partition)

    async def _exchange(self, given: Mapping[Log, int]) -> int:
        """Close logs, and let others lead their partitions, within a change."""
        # Meanwhile the partition may have been deleted, its disk may have failed, or the session
        # of this broker may have ended, so that another one leads it.
        logs = [
            log
            for log in given
            if self._topics.serves(log) and not self._moves.is_moving(log)
        ]
        copies = self._copies({log: given[log] for log in logs})
        logs = [log for log in logs if log in copies or self._is_at_hand(log, given[log])]
        # From here to the outcome memory follows no change: it would open the logs again.
        self._topics.give_up(logs)
        if copies:  # then all of them are copied
            await self._closing.flush(logs)
            logs = await self._followers.until_copied(copies, _COPY_PATIENCE_S)
        closed = await self._closing.close(logs, {log: log.leader_epoch + 1 for log in copies})
        self._topics.note_left(
            {_key(log): one for log, one in closed.items() if not log.is_shared}
        )
        # Where no log is closed there is nothing to learn.
        handed = {
            _key(log): Handover(given[log], _elsewhere(left), copies[log].move)
            if log in copies
            else Handover(given[log], left)
            for log, left in closed.items()
        }
        work = partial(hand_over, own_id=self._brokers.own.node_id, given=handed)
        is_known = not closed or await self._closing.commit(work)
        if not self._topics.has_resigned:
            await self._topics.restore()
        if not is_known:
            return 0
        await self._closing.remove(closed)
        return sum(not self._topics.leads(*_key(log)) for log in closed)

    def _copies(self, given: Mapping[Log, int]) -> dict[Log, Leader]:
        """Return the logs that are still to move to other hosts, with their targets."""
        found = {}
        for log, node_id in given.items():
            leader = self._topics.leader_of(*_key(log))
            if leader and leader.target == node_id and not self._is_at_hand(log, node_id):
                found[log] = leader
        return found


def _key(log: Log) -> Partition:
    return log.topic_id, log.partition


def _elsewhere(left: LeftLog) -> LeftLog:
    """Return how a copy is left on another host.

    The cleaner begins again there: the copy may have records that were removed here since.
    """
    return replace(left, cleaner_offset=None, is_clean=False)


def _chunks(
    given: Sequence[tuple[Log, int]], size: int = _AT_ONCE
) -> Iterator[Sequence[tuple[Log, int]]]:
    for at in range(0, len(given), size):
        yield given[at : at + size]
