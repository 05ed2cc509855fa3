"""The share-partitions in use: loads them, carries out their decisions, and runs their timers.

A share-partition is loaded when a member first fetches it. It is dropped when its topic is
deleted, when its group has no session left, or when its stored state shows that another leader
has taken over. The coordinator of the state (state_coordinator.py) stores its decisions, and only
then are acknowledgements answered.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future, Task, TimerHandle
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from odradek.broker.coordination.seams import Loop
from odradek.broker.errors import EXPLAINED, code_of, message_of
from odradek.broker.fetch.purgatory import DelayedFetch, Purgatory
from odradek.broker.shares import locks
from odradek.broker.shares.acknowledging import Acknowledgement, acknowledge, release
from odradek.broker.shares.batches import cut
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.outcomes import Failure, Outcome, Ticket, Wake, Write
from odradek.broker.shares.partition import SharePartition
from odradek.broker.shares.settings import ShareSettings
from odradek.broker.shares.starting import start_offset
from odradek.broker.shares.state_coordinator import ShareStateCoordinator
from odradek.broker.shares.state_shard import StateAnswer
from odradek.broker.shares.states import Persister
from odradek.broker.topics.registry import Topics
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

_MS_PER_S = 1_000
_UNAVAILABLE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_FENCED = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
_KEPT = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
# After these errors the state belongs to another leader, and the share-partition is dropped.
_DROPPED_AFTER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, *_KEPT)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of the broker that share-partitions use."""

    topics: Topics
    states: ShareStateCoordinator
    persister: Persister
    settings: ShareSettings
    purgatory: Purgatory
    loop: Loop
    now_ms: Callable[[], int]  # the time of day


class Served:
    """A share-partition in use; its owner is SharePartitions."""

    __slots__ = (
        "_around", "_handle", "delayed", "is_dropped", "is_reading", "key", "log", "partition",
    )  # fmt: skip

    def __init__(self, key: SharePartitionKey, log: Log, around: Surroundings) -> None:
        self.key, self.log, self._around = key, log, around
        self.partition: SharePartition | None = None  # until it is loaded
        # A fetch reads the log in a thread; others wait, so that they do not read the same data.
        self.is_reading = False
        self.is_dropped = False
        self.delayed: set[DelayedFetch] = set()
        self._handle: TimerHandle | None = None

    def clock_ms(self) -> int:
        """Return the time on the clock of locks, in milliseconds; it never goes back."""
        return int(self._around.loop.time() * _MS_PER_S)

    @property
    def can_be_read(self) -> bool:
        """Whether a fetch may read the log for it now."""
        return not self.is_reading and not self.is_dropped

    def wake(self) -> None:
        """Let the delayed fetches look again."""
        for fetch in self.delayed:
            self._around.purgatory.reconsider(fetch)

    def watch(self) -> None:
        """Start the timer of locks, after records were acquired."""
        partition = self.partition
        if self._handle is None and not self.is_dropped and partition is not None:
            self._wait(partition.config().lock_duration_ms)

    def close(self) -> None:
        """Stop serving: cancel the timer, and wake the delayed fetches."""
        self.is_dropped = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.wake()

    def perform(self, outcomes: Iterable[Outcome]) -> None:
        """Carry out the decisions of the share-partition."""
        for outcome in outcomes:
            if isinstance(outcome, Write):
                self._write(outcome)
            elif isinstance(outcome, Wake):
                self.wake()
            elif isinstance(outcome.token, Future) and not outcome.token.done():
                outcome.token.set_result(outcome.failure)

    def _write(self, write: Write) -> None:
        answer = self._around.persister.write(self.key, write.change)
        if isinstance(answer, StateAnswer):
            self._written(write.ticket, answer)
        else:
            awaited = asyncio.ensure_future(answer)
            awaited.add_done_callback(lambda done: self._written(write.ticket, done.result()))

    def _written(self, ticket: Ticket, answer: StateAnswer) -> None:
        assert self.partition is not None, "only a loaded share-partition writes"
        self.perform(self.partition.written(ticket, failure_of(answer, "write")))

    def _wait(self, duration_ms: int) -> None:
        delay_s = max(duration_ms + 1, 1) / _MS_PER_S
        self._handle = self._around.loop.call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._handle = None
        partition = self.partition
        assert partition is not None, "only a loaded share-partition has locks"
        now_ms = self.clock_ms()
        self.perform(locks.expire(partition, now_ms))
        deadline_ms = partition.next_deadline_ms()
        if deadline_ms is not None:
            self._wait(deadline_ms - now_ms)


class SharePartitions:
    """The share-partitions in use, by group and partition; the event loop owns it."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self._served: dict[SharePartitionKey, Served] = {}
        self._loading: dict[SharePartitionKey, Task[Failure | None]] = {}

    def __len__(self) -> int:
        """Return the number of share-partitions in use."""
        return len(self._served)

    def find(self, key: SharePartitionKey) -> Served | None:
        """Return a share-partition in use; it may not be loaded yet."""
        return self._served.get(key)

    def load(self, key: SharePartitionKey, log: Log) -> Served | Awaitable[Served | Failure]:
        """Return a loaded share-partition, or an awaitable of it or of the failure to load it."""
        served = self._served.get(key)
        if served is not None and (served.log is not log or log.is_closed):
            self.drop(key)
            served = None
        if served is None:
            served = self._served[key] = Served(key, log, self.around)
            self._loading[key] = self.around.loop.create_task(self._load(served))
        elif served.partition is not None:
            return served
        return self._loaded(served, self._loading[key])

    def acknowledge(
        self, key: SharePartitionKey, member_id: str, given: Sequence[Acknowledgement]
    ) -> Failure | Future[Failure | None]:
        """Take a member's acknowledgements; done when they are stored."""
        served = self._served.get(key)
        if served is None or served.partition is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return Failure(code, code.sentence)
        token = self.around.loop.create_future()
        token.add_done_callback(partial(self._drop_if_fenced, served))
        served.perform(
            acknowledge(served.partition, member_id, given, token, served.clock_ms())
        )
        served.watch()
        return token

    def release(self, key: SharePartitionKey, member_id: str) -> None:
        """Make the records of a member that has left available to others."""
        served = self._served.get(key)
        if served is not None and served.partition is not None:
            token = self.around.loop.create_future()
            token.add_done_callback(partial(self._drop_if_fenced, served))
            served.perform(release(served.partition, member_id, token))

    def drop(self, key: SharePartitionKey) -> None:
        """Drop a share-partition; the next fetch loads its stored state."""
        served = self._served.pop(key, None)
        loading = self._loading.pop(key, None)
        if loading is not None:
            loading.cancel()
        if served is not None:
            served.close()

    def drop_group(self, group_id: str) -> None:
        """Drop the share-partitions of a group without sessions."""
        for key in [key for key in self._served if key.group_id == group_id]:
            self.drop(key)

    def drop_topic(self, topic_id: bytes) -> None:
        """Drop the share-partitions of a deleted topic."""
        for key in [key for key in self._served if key.topic_id == topic_id]:
            self.drop(key)

    def drop_logs(self, logs: Iterable[Log]) -> None:
        """Drop the share-partitions of logs that this broker does not lead any more."""
        gone = {(log.topic_id, log.partition) for log in logs}
        for key in [key for key in self._served if (key.topic_id, key.partition) in gone]:
            self.drop(key)

    def close(self) -> None:
        """Drop all share-partitions."""
        for key in list(self._served):
            self.drop(key)

    async def _loaded(
        self, served: Served, loading: Task[Failure | None]
    ) -> Served | Failure:
        await asyncio.wait([loading])
        if loading.cancelled():
            return Failure(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Share partition is fenced")
        return loading.result() or served

    async def _load(self, served: Served) -> Failure | None:
        key, log = served.key, served.log
        failure = await self._restore(served)
        del self._loading[key]
        if failure is not None:
            logger.info("failed to load share partition key=%r: %s", key.name, failure.message)
            self.drop(key)
            return failure
        logger.info("loaded share partition group=%r log=%s", key.group_id, log.name)
        served.wake()
        return None

    async def _restore(self, served: Served) -> Failure | None:
        key, log, around = served.key, served.log, self.around
        await around.states.is_loaded.wait()
        asked = around.persister.read(key, log.leader_epoch)
        answer = asked if isinstance(asked, StateAnswer) else await asked
        failure = failure_of(answer, "read")
        if failure is not None:
            return failure
        settings = around.settings.of
        try:
            start = await start_offset(
                log, answer.state, settings(key.group_id).auto_offset_reset, around.now_ms()
            )
            # A crash may have lost records whose state was stored: states past the end are cut.
            state = replace(answer.state, batches=cut(answer.state.batches, log.log_end_offset))
            served.partition = SharePartition(
                state, start, log.leader_epoch, lambda: settings(key.group_id).partition
            )
        except EXPLAINED as error:
            return Failure(code_of(error), message_of(error))
        except ValueError as error:
            return Failure(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        return None

    def _drop_if_fenced(self, served: Served, done: Future[Failure | None]) -> None:
        failure = None if done.cancelled() else done.result()
        if failure is not None and failure.error in _DROPPED_AFTER:
            logger.info("dropped share partition key=%r: %s", served.key.name, failure.message)
            if self._served.get(served.key) is served:
                self.drop(served.key)


def failure_of(answer: StateAnswer, operation: str) -> Failure | None:
    """Return the failure for a member when a state could not be read or written, else None."""
    error = answer.error
    if error is ErrorCode.NONE:
        return None
    message = answer.error_message(operation)
    if error in _UNAVAILABLE:
        return Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    if error in _FENCED:
        return Failure(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
    if error in _KEPT:
        return Failure(error, message)
    return Failure(ErrorCode.UNKNOWN_SERVER_ERROR, message)
