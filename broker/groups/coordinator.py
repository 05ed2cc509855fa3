"""The coordinator of groups and committed offsets: asks a group's shard for decisions.

Each partition of __consumer_offsets has a shard (shard.py); coordination/runtime.py carries out
its decisions.
"""

from __future__ import annotations

import asyncio
import uuid
from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from odradek.broker.coordination.expressions import Matching
from odradek.broker.coordination.machine import Codec
from odradek.broker.coordination.runtime import Answer, Runtime
from odradek.broker.coordination.seams import InternalTopic, Requester, Time
from odradek.broker.errors import Refusal, message_of
from odradek.broker.groups import commits, responses, sessions, transactional
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.consumer import checks, descriptions, heartbeats
from odradek.broker.groups.consumer.effects import MatchExpressions
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.listing import GroupFilter
from odradek.broker.groups.modern.subscriptions import check_names
from odradek.broker.groups.modern.topics import TopicView
from odradek.broker.groups.records import decode_record, encode_record
from odradek.broker.groups.registry import DEFAULT_CONFIGS, OwnConfigs
from odradek.broker.groups.shard import Shard
from odradek.broker.groups.state import ClassicGroup
from odradek.broker.loop.tasks import start_task
from odradek.broker.orders.partitions import asking_order, loading_order
from odradek.broker.topics.names import CONSUMER_OFFSETS
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import consumer_group_describe
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.messages.describe_groups import DescribedGroup
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.protocol.messages.list_groups import ListedGroup
from odradek.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from odradek.protocol.pacing import paced
from odradek.storage.transactions import Marker

Admission = Callable[[int, TxnOffsetCommitRequest, int], Answer[ErrorCode]]


def _random_id() -> str:
    return str(uuid.uuid4())


class GroupCoordinator:
    """Owns the shards, through the runtime that runs them.

    Each operation returns its answer, or an awaitable of it if the answer must wait for other
    members or for the log.
    """

    def __init__(
        self,
        log: InternalTopic,
        topics: TopicView,
        config: GroupConfig,
        *,
        time: Time,
        fresh_id: Callable[[], str] = _random_id,
        own: OwnConfigs = DEFAULT_CONFIGS,
        matching: Matching | None = None,
    ) -> None:
        self.topics = topics
        self.config = config
        # Called before a TxnOffsetCommit, with the group's partition, the request and its version.
        # It returns whether the partition is part of the producer's transaction, after adding it
        # if the version does (KIP-890). The coordinator of transactions sets it.
        self.admit_to_transaction: Admission = lambda partition, request, version: ErrorCode.NONE
        self._clock = time.clock
        self._fresh_id = fresh_id
        self._runtime = Runtime(
            "groups",
            log,
            Codec(encode_record, decode_record, Shard.replay_offsets),
            lambda partition: Shard(partition, self.config, topics, own),
            time=time,
            act=self._match_expressions,
        )
        self._matching = matching or Matching()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def runtime(self) -> Runtime[Shard]:
        """The runtime of the shards, for the coordinator of the share groups in them."""
        return self._runtime

    async def load(self) -> None:
        """Replay every partition, and begin to serve each as soon as it is replayed."""
        await self._runtime.load()
        self._runtime.do_in_turn(
            "expire offsets",
            lambda: self.config.offsets_retention_check_interval_ms,
            lambda shard, now_ms: shard.offsets.expire(now_ms),
        )

    def close(self) -> None:
        """End serving: answer all parked requests, and stop the timer."""
        for task in self._tasks:
            task.cancel()
        self._runtime.close()

    def reconfigure(self, config: GroupConfig) -> None:
        """Apply other options from the next request on."""
        self.config = config
        for shard in self._runtime.machines:
            shard.config = config

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, requester: Requester
    ) -> Answer[ConsumerGroupHeartbeatResponse]:
        """Carry out a ConsumerGroupHeartbeat."""
        if not self.config.serves_consumers:
            return heartbeats.refuse(ErrorCode.UNSUPPORTED_VERSION)
        try:
            checks.check_heartbeat(
                request, requester.api_version, self.config.consumer_assignors
            )
            check_names(request.subscribed_topic_names, self.topics)
        except Refusal as error:
            return heartbeats.refuse(error.code, message_of(error))
        shard = self._runtime.machine_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return heartbeats.refuse(shard)
        caller = self._runtime.caller(requester, fresh_id=self._fresh_id())
        effects = shard.consumer_heartbeat(request, caller, self._clock.now_ms())
        return self._runtime.run(
            request.group_id, effects, caller, ConsumerGroupHeartbeatResponse
        )

    def join(self, request: JoinGroupRequest, requester: Requester) -> Answer[JoinGroupResponse]:
        """Carry out a JoinGroup."""
        shard = self._runtime.machine_of(request.group_id)
        if isinstance(shard, ErrorCode):
            version = requester.api_version
            return responses.join_error(shard, request.member_id, api_version=version)
        caller = self._runtime.caller(requester, fresh_id=self._fresh_id())
        effects = shard.join(request, caller, self._clock.now_ms())
        return self._runtime.run(request.group_id, effects, caller, JoinGroupResponse)

    def sync(self, request: SyncGroupRequest, requester: Requester) -> Answer[SyncGroupResponse]:
        """Carry out a SyncGroup."""
        shard = self._runtime.machine_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return responses.sync_error(shard)
        caller = self._runtime.caller(requester)
        effects = shard.sync(request, caller, self._clock.now_ms())
        return self._runtime.run(request.group_id, effects, caller, SyncGroupResponse)

    def heartbeat(
        self, request: HeartbeatRequest, requester: Requester
    ) -> Answer[HeartbeatResponse]:
        """Carry out a Heartbeat."""
        shard = self._runtime.machine_of(request.group_id)
        if isinstance(shard, ErrorCode):
            # As in Kafka, heartbeats succeed while the group is loading, so that members stay.
            is_loading = shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else shard)
        caller = self._runtime.caller(requester)
        effects = shard.heartbeat(request, caller, self._clock.now_ms())
        return self._runtime.run(request.group_id, effects, caller, HeartbeatResponse)

    def leave(
        self, request: LeaveGroupRequest, requester: Requester
    ) -> Answer[LeaveGroupResponse]:
        """Carry out a LeaveGroup."""
        shard = self._runtime.machine_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return sessions.leave_error(shard)
        caller = self._runtime.caller(requester)
        effects = shard.leave(request, caller, self._clock.now_ms())
        return self._runtime.run(request.group_id, effects, caller, LeaveGroupResponse)

    def commit(
        self, request: OffsetCommitRequest, requester: Requester
    ) -> Answer[OffsetCommitResponse]:
        """Store offsets of topics that exist, named by both name and id."""
        shard = self._runtime.machine_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return commits.refusal(request, shard, paced)
        caller = self._runtime.caller(requester)
        effects = shard.offsets.commit(request, caller, self._clock.now_ms())
        return self._runtime.run(request.group_id, effects, caller, OffsetCommitResponse)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, requester: Requester
    ) -> Answer[TxnOffsetCommitResponse]:
        """Store offsets of existing topics, which take effect when the transaction commits."""
        if not request.group_id:
            return transactional.refusal(request, ErrorCode.INVALID_GROUP_ID, paced)
        partition = self._runtime.partition_of(request.group_id)
        admitted = self.admit_to_transaction(partition, request, requester.api_version)
        if isinstance(admitted, ErrorCode):
            return self._commit_admitted(request, requester, admitted)
        return self._commit_when_admitted(request, requester, admitted)

    def end_transaction(self, partition: int, marker: Marker) -> Answer[ErrorCode]:
        """Append the marker that ends a transaction to a partition of __consumer_offsets.

        Answered when the log has it; then the transaction's offsets take effect, or are dropped.
        """
        shard = self._runtime.machine_at(partition)
        if isinstance(shard, ErrorCode):
            return shard
        caller = self._runtime.caller()
        effects = shard.offsets.end_transaction(marker, caller.token)
        return self._runtime.run_at(partition, effects, caller, ErrorCode)

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Read a group's stored offsets; those of open transactions do not count."""
        shard = self._runtime.machine_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=shard)
        group = shard.group(request.group_id)
        error = commits.fetch_problem(group, request)
        if error is not ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=error)
        return commits.fetch(group, request, require_stable=require_stable, pace=paced)

    def unstored(self, group_ids: Iterable[str]) -> Collection[Future[None]]:
        """Return futures that are done once all received offsets of groups are stored."""
        shards = ((self._runtime.machine_of(group_id), group_id) for group_id in group_ids)
        partitions = {
            shard.partition
            for shard, group_id in shards
            if isinstance(shard, Shard)
            and group_id in shard.groups
            and shard.groups[group_id].offsets.pending
        }
        return {begun for one in partitions for begun in self._runtime.appending(one)}

    def delete(self, group_id: str) -> Answer[ErrorCode]:
        """Remove an empty group and its offsets."""
        shard = self._runtime.machine_of(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        caller = self._runtime.caller()
        effects = shard.offsets.delete(group_id, caller.token)
        return self._runtime.run(group_id, effects, caller, ErrorCode)

    def delete_offsets(
        self, request: OffsetDeleteRequest, answers: Sequence[OffsetDeleteResponseTopic]
    ) -> Answer[OffsetDeleteResponse]:
        """Remove offsets of partitions that exist, in topics that the group does not read.

        `answers` are the answers for the topics in case the group reads none of them.
        """
        shard = self._runtime.machine_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return OffsetDeleteResponse(error_code=shard)
        caller = self._runtime.caller()
        effects = shard.offsets.delete_offsets(request, answers, caller.token)
        return self._runtime.run(request.group_id, effects, caller, OffsetDeleteResponse)

    def describe(self, group_id: str, *, api_version: int) -> DescribedGroup:
        """Describe a group."""
        shard = self._runtime.machine_of(group_id)
        if isinstance(shard, ErrorCode):
            return responses.described_error(group_id, shard)
        group = shard.group(group_id)
        if isinstance(group, ClassicGroup):
            return responses.described(group)
        why = "is not a classic group" if shard.has(group_id) else "not found"
        return responses.described_as_unknown(group_id, why, api_version=api_version)

    def describe_consumers(self, group_id: str) -> consumer_group_describe.DescribedGroup:
        """Describe a consumer group."""
        if not self.config.serves_consumers:
            return descriptions.refused(group_id, ErrorCode.UNSUPPORTED_VERSION)
        if not group_id:
            return descriptions.refused(group_id, ErrorCode.INVALID_GROUP_ID)
        shard = self._runtime.machine_of(group_id)
        if isinstance(shard, ErrorCode):
            return descriptions.refused(group_id, shard)
        group = shard.group(group_id)
        if isinstance(group, ConsumerGroup):
            return descriptions.described(group, self.topics, self.config.consumer_assignors[0])
        why = "is not a consumer group" if shard.has(group_id) else "not found"
        error = ErrorCode.GROUP_ID_NOT_FOUND
        return descriptions.refused(group_id, error, f"Group {group_id} {why}.")

    def list_groups(
        self, states: Iterable[str], types: Iterable[str]
    ) -> tuple[ErrorCode, list[ListedGroup]]:
        """List the groups with one of the states and types; an empty filter passes all groups."""
        problem = self._runtime.problem
        if problem is not ErrorCode.NONE:
            return problem, []
        wanted = GroupFilter.of(states, types)
        count = self._runtime.partition_count
        shards = map(self._runtime.machine_at, loading_order(CONSUMER_OFFSETS, count))
        return ErrorCode.NONE, [
            group
            for shard in shards
            if isinstance(shard, Shard)
            for group in shard.listed()
            if wanted.passes(group)
        ]

    def partition_of(self, group_id: str) -> int:
        """Return the partition of __consumer_offsets that holds a group."""
        return self._runtime.partition_of(group_id)

    def in_asking_order(self, group_ids: Iterable[str]) -> list[str]:
        """Sort groups in the order in which Kafka asks their partitions."""
        by_partition: dict[int, list[str]] = {}
        for group_id in paced(group_ids):
            by_partition.setdefault(self._runtime.partition_of(group_id), []).append(group_id)
        order = asking_order(CONSUMER_OFFSETS, by_partition)
        return [group_id for partition in order for group_id in by_partition[partition]]

    def topic_changed(self, name: str, *, is_new: bool) -> None:
        """Notify the groups of a topic that was created or deleted, or has new partitions."""
        for shard in self._runtime.machines:
            shard.consumers.topic_changed(name, is_new=is_new)
            shard.shares.topic_changed(name)
            shard.streams.topic_changed(name)

    def topic_deleted(self, name: str, topic_id: bytes) -> None:
        """Remove the offsets that groups have committed for a topic."""
        now_ms = self._clock.now_ms()
        self._runtime.for_all(lambda shard: shard.offsets.topic_deleted(name, topic_id))
        self._runtime.for_all(lambda shard: shard.shares.topic_deleted(topic_id, now_ms))

    async def _commit_when_admitted(
        self,
        request: TxnOffsetCommitRequest,
        requester: Requester,
        admitted: Awaitable[ErrorCode],
    ) -> TxnOffsetCommitResponse:
        partition, version = self._runtime.partition_of(request.group_id), requester.api_version
        answer: Answer[ErrorCode] = admitted
        while not isinstance(answer, ErrorCode):
            error = await answer
            if error is not ErrorCode.NONE:
                return transactional.refusal(request, error, paced)
            # Ask again, because the transaction may have ended since: no other step of the event
            # loop may run between the answer and the append.
            answer = self.admit_to_transaction(partition, request, version)
        stored = self._commit_admitted(request, requester, answer)
        return stored if isinstance(stored, TxnOffsetCommitResponse) else await stored

    def _commit_admitted(
        self, request: TxnOffsetCommitRequest, requester: Requester, admitted: ErrorCode
    ) -> Answer[TxnOffsetCommitResponse]:
        if admitted is not ErrorCode.NONE:
            return transactional.refusal(request, admitted, paced)
        shard = self._runtime.machine_of(request.group_id)
        if isinstance(shard, ErrorCode):
            return transactional.refusal(request, shard, paced)
        caller = self._runtime.caller(requester)
        effects = shard.offsets.commit_in_transaction(request, caller, self._clock.now_ms())
        return self._runtime.run(request.group_id, effects, caller, TxnOffsetCommitResponse)

    def _match_expressions(self, partition: int, action: MatchExpressions) -> None:
        task = start_task("match expressions", self._match(partition, action))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _match(self, partition: int, action: MatchExpressions) -> None:
        shard = self._runtime.machine_at(partition)
        found = await self._matching.match_all(action.expressions, action.topics)
        if isinstance(shard, ErrorCode) or shard is not self._runtime.machine_at(partition):
            return  # The shard was loaded again; the next heartbeat matches the expressions.
        effects = shard.expressions_matched(action, found, self._clock.now_ms())
        self._runtime.perform(partition, effects)
