"""The coordinator of classic groups and committed offsets: carries out what shards decide.

One shard a partition of __consumer_offsets decides (shard.py); the coordinator finds the shard
of a group, appends its records, resolves its answers, and keeps its deadlines in one heap with
one timer of the event loop. All of it runs on the loop.

    handler -> join() -> shard.join -> [Persist] -> log.append ..durable..> shard.stored
       ^                                                                        |
       +---------------------------- future.set_result <- [Reply] <-------------+
"""

from __future__ import annotations

import logging
import uuid
from asyncio import Future, TimerHandle
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeAlias, TypeVar, Union, cast

from broker import errors
from broker.groups import commits, offsets_log, responses, sessions
from broker.groups.config import GroupConfig
from broker.groups.deadlines import Deadlines
from broker.groups.effects import (
    Caller,
    CancelTimer,
    Effect,
    Note,
    Persist,
    Reply,
    StartTimer,
    Ticket,
    Timer,
)
from broker.groups.java import partition_for
from broker.groups.records import encode_record
from broker.groups.seams import Loop, OffsetsLog, Requester, Topics, WallClock
from broker.groups.shard import Shard
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.describe_groups import DescribedGroup
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from protocol.messages.list_groups import ListedGroup
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)

T = TypeVar("T")
Appended: TypeAlias = tuple[Future[None], Ticket]
Answer: TypeAlias = Union[T, Awaitable[T]]  # noqa: UP007 (an alias of a type variable)

_MS_PER_S = 1_000
# Stands among the timers of groups for the next search for expired offsets.
_EXPIRY = "expiry"


def _random_id() -> str:
    return str(uuid.uuid4())


class GroupCoordinator:
    """Owns the shards, the answers that are due, and the deadlines.

    Each operation returns its answer, or an awaitable of it where the answer has to wait for
    other members or for the log. Until its partition is loaded a group's requests are answered
    with COORDINATOR_LOAD_IN_PROGRESS, and after `close` with COORDINATOR_NOT_AVAILABLE.
    """

    def __init__(
        self,
        log: OffsetsLog,
        topics: Topics,
        config: GroupConfig,
        *,
        clock: WallClock,
        loop: Loop,
        fresh_id: Callable[[], str] = _random_id,
    ) -> None:
        self.topics = topics
        self.config = config
        self._log = log
        self._clock = clock
        self._loop = loop
        self._fresh_id = fresh_id
        self._partition_count = log.partition_count
        self._shards: dict[int, Shard] = {}
        self._is_closed = False
        self._deadlines: Deadlines[Timer | str] = Deadlines()
        self._handle: TimerHandle | None = None
        self._armed_at = 0.0
        # Partitions that could not be loaded.
        self._failed: set[int] = set()
        # By partition, what has been appended and not been gone on with, in the log's order.
        self._appended: defaultdict[int, deque[Appended]] = defaultdict(deque)

    async def load(self) -> None:
        """Replay every partition, and begin to serve each as soon as it is replayed.

        A partition whose log cannot be read is not served: NOT_COORDINATOR.
        """
        for partition in range(self._partition_count):
            try:
                await self._load_partition(partition)
            except errors.EXPLAINED as error:
                self._failed.add(partition)
                logger.error("failed to load groups partition=%d error=%s", partition, error)
        self._schedule_expiry()

    def close(self) -> None:
        """End serving: answer all that is parked, and stop the clock."""
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        for shard in self._shards.values():
            self._perform(shard, shard.unload(self._clock.now_ms()))

    def reconfigure(self, config: GroupConfig) -> None:
        """Go by other options from the next request on."""
        self.config = config
        for shard in self._shards.values():
            shard.config = config

    def join(self, request: JoinGroupRequest, requester: Requester) -> Answer[JoinGroupResponse]:
        """Carry out a JoinGroup."""
        shard = self._shard_of(request.group_id)
        if isinstance(shard, ErrorCode):
            version = requester.api_version
            return responses.join_error(shard, request.member_id, api_version=version)
        caller = self._caller(requester, fresh_id=self._fresh_id())
        effects = shard.join(request, caller, self._clock.now_ms())
        return self._run(shard, effects, caller, JoinGroupResponse)

    def sync(self, request: SyncGroupRequest, requester: Requester) -> Answer[SyncGroupResponse]:
        """Carry out a SyncGroup."""
        shard = self._shard_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return responses.sync_error(shard)
        caller = self._caller(requester)
        effects = shard.sync(request, caller, self._clock.now_ms())
        return self._run(shard, effects, caller, SyncGroupResponse)

    def heartbeat(
        self, request: HeartbeatRequest, requester: Requester
    ) -> Answer[HeartbeatResponse]:
        """Carry out a Heartbeat."""
        shard = self._shard_of(request.group_id)
        if isinstance(shard, ErrorCode):
            # While the group is loaded its members are to stay as they are, as in Kafka.
            is_loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else shard)
        caller = self._caller(requester)
        effects = shard.heartbeat(request, caller, self._clock.now_ms())
        return self._run(shard, effects, caller, HeartbeatResponse)

    def leave(
        self, request: LeaveGroupRequest, requester: Requester
    ) -> Answer[LeaveGroupResponse]:
        """Carry out a LeaveGroup."""
        shard = self._shard_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return sessions.leave_error(shard)
        caller = self._caller(requester)
        effects = shard.leave(request, caller, self._clock.now_ms())
        return self._run(shard, effects, caller, LeaveGroupResponse)

    def commit(
        self, request: OffsetCommitRequest, requester: Requester
    ) -> Answer[OffsetCommitResponse]:
        """Store offsets of topics that exist, named by both name and id."""
        shard = self._shard_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return commits.commit_error(request, shard)
        caller = self._caller(requester)
        effects = shard.commit(request, caller, self._clock.now_ms())
        return self._run(shard, effects, caller, OffsetCommitResponse)

    def fetch(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """Read a group's offsets, as far as they are stored."""
        shard = self._shard_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=shard)
        return commits.fetch(shard.groups.get(request.group_id), request)

    def unstored(self, group_ids: Iterable[str]) -> Collection[Future[None]]:
        """Return what to wait for until the offsets of groups that have come are stored."""
        shards = ((self._shard_of(group_id), group_id) for group_id in group_ids)
        partitions = {
            shard.partition
            for shard, group_id in shards
            if isinstance(shard, Shard)
            and group_id in shard.groups
            and shard.groups[group_id].offsets.pending
        }
        return {appended for one in partitions for appended, _ in self._appended[one]}

    def delete(self, group_id: str) -> Answer[ErrorCode]:
        """Remove an empty group and its offsets."""
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        caller = Caller(self._loop.create_future(), api_version=0)
        return self._run(shard, shard.delete(group_id, caller.token), caller, ErrorCode)

    def delete_offsets(self, request: OffsetDeleteRequest) -> Answer[OffsetDeleteResponse]:
        """Remove offsets of partitions that exist, in topics that the group does not read."""
        shard = self._shard_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return OffsetDeleteResponse(error_code=shard)
        caller = Caller(self._loop.create_future(), api_version=0)
        effects = shard.delete_offsets(request, caller.token)
        return self._run(shard, effects, caller, OffsetDeleteResponse)

    def describe(self, group_id: str, *, api_version: int) -> DescribedGroup:
        """Describe a group."""
        shard = self._shard_of(group_id)
        if isinstance(shard, ErrorCode):
            return responses.described_error(group_id, shard)
        group = shard.groups.get(group_id)
        if group is None:
            return responses.described_as_unknown(group_id, api_version=api_version)
        return responses.described(group)

    def list_groups(
        self, states: Iterable[str], types: Iterable[str]
    ) -> tuple[ErrorCode, list[ListedGroup]]:
        """List the groups whose state and type are among some; none given lets all through."""
        if self._is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        if len(self._shards) + len(self._failed) < self._partition_count:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.lower() for kind in types}
        if wanted_types and responses.GROUP_TYPE not in wanted_types:
            return ErrorCode.NONE, []
        return ErrorCode.NONE, [
            responses.listed(group)
            for shard in self._shards.values()
            for group in shard.groups.values()
            if not wanted_states or group.state.value.lower() in wanted_states
        ]

    def topic_deleted(self, name: str, topic_id: bytes) -> None:
        """Remove the offsets that groups have committed for a topic."""
        for shard in self._shards.values():
            self._perform(shard, shard.topic_deleted(name, topic_id))

    async def _load_partition(self, partition: int) -> None:
        shard = Shard(partition, self.config)
        await offsets_log.replay(self._log, shard)
        if self._is_closed:
            return
        self._shards[partition] = shard
        self._perform(shard, shard.loaded(self._clock.now_ms()))

    def _shard_of(self, group_id: str) -> Shard | ErrorCode:
        if self._is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = partition_for(group_id, self._partition_count)
        shard = self._shards.get(partition)
        if shard is not None:
            return shard
        if partition in self._failed:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _caller(self, requester: Requester, *, fresh_id: str = "") -> Caller:
        return Caller(
            token=self._loop.create_future(),
            api_version=requester.api_version,
            client_id=requester.client_id,
            client_host=requester.client_host,
            fresh_id=fresh_id,
        )

    def _run(
        self, shard: Shard, effects: Iterable[Effect], caller: Caller, kind: type[T]
    ) -> Answer[T]:
        """Carry effects out; return the caller's answer, of a kind, or a future of it."""
        self._perform(shard, effects)
        future = cast("Future[T]", caller.token)
        return future.result() if future.done() else future

    def _perform(self, shard: Shard, effects: Iterable[Effect]) -> None:
        """Carry effects out in order, with those that follow from them after them."""
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            match effect:
                case Reply():
                    _resolve(effect)
                case StartTimer():
                    # At least a millisecond, so that firing timers always comes to an end.
                    delay_s = max(effect.delay_ms, 1) / _MS_PER_S
                    self._deadlines.set(effect.timer, self._loop.time() + delay_s)
                case CancelTimer():
                    self._deadlines.cancel(effect.timer)
                case Persist():
                    queue.extend(self._persist(shard, effect))
                case Note():
                    _log(effect)
        self._arm()

    def _persist(self, shard: Shard, effect: Persist) -> list[Effect]:
        """Append records; return what follows when the log has them (or fails) at once."""
        partition, ticket = shard.partition, effect.ticket
        try:
            appended = self._log.append(partition, [encode_record(r) for r in effect.records])
        except ProtocolError as error:
            # A name too long for the record's format: newer requests can carry such names.
            logger.warning("refused records partition=%d error=%s", partition, error)
            return shard.stored(ticket, ErrorCode.UNKNOWN_SERVER_ERROR, self._clock.now_ms())
        queue = self._appended[partition]
        if appended.done() and not queue:
            return shard.stored(ticket, offsets_log.outcome(appended), self._clock.now_ms())
        queue.append((appended, ticket))
        appended.add_done_callback(partial(self._go_on, shard))
        return []

    def _go_on(self, shard: Shard, _: Future[None]) -> None:
        """Go on after appends that have ended; a later one waits for those before it."""
        queue = self._appended[shard.partition]
        while queue and queue[0][0].done():
            appended, ticket = queue.popleft()
            outcome = offsets_log.outcome(appended)
            self._perform(shard, shard.stored(ticket, outcome, self._clock.now_ms()))

    def _schedule_expiry(self) -> None:
        delay_s = self.config.offsets_retention_check_interval_ms / _MS_PER_S
        self._deadlines.set(_EXPIRY, self._loop.time() + delay_s)
        self._arm()

    def _arm(self) -> None:
        """Have the loop call back at the first deadline."""
        at = self._deadlines.next()
        if at is None or self._is_closed:
            return
        if self._handle is not None:
            if self._armed_at <= at:
                return
            self._handle.cancel()
        self._armed_at = at
        self._handle = self._loop.call_later(max(at - self._loop.time(), 0.0), self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = self._loop.time()
        try:
            while (fired := self._deadlines.pop(now)) is not None:
                self._fire_one(fired)
        finally:
            self._arm()

    def _fire_one(self, fired: Timer | str) -> None:
        now_ms = self._clock.now_ms()
        if isinstance(fired, str):
            for shard in self._shards.values():
                self._perform(shard, shard.expire(now_ms))
            self._schedule_expiry()
            return
        shard = self._shards[partition_for(fired.group_id, self._partition_count)]
        self._perform(shard, shard.timer_fired(fired, now_ms))


def _log(note: Note) -> None:
    # Clients choose some of the names in it: one event stays one line.
    text = note.text if note.text.isprintable() else repr(note.text)[1:-1]
    logger.log(logging.WARNING if note.is_warning else logging.INFO, "%s", text)


def _resolve(reply: Reply) -> None:
    future = cast("Future[Any]", reply.token)
    if not future.done():  # A connection that has closed cancels what it waited for.
        future.set_result(reply.response)
