"""The consumer groups of one partition of __consumer_offsets: a part of its Shard.

As in Kafka, an operation decides on records and takes them in at once; its request is answered
when the log has the records. If the log refuses them, memory is ahead of the log, and the
partition is loaded again. Kafka's source: GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from odradek.broker.coordination.effects import Caller, Effect, Reply, Timer
from odradek.broker.errors import Refusal, message_of
from odradek.broker.groups import rebalance, responses
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.consumer import checks, classic, conversion, expressions, heartbeats
from odradek.broker.groups.consumer.effects import ConsumerTimer, MatchExpressions
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEFT_EPOCH,
    Member,
    MemberState,
)
from odradek.broker.groups.consumer.records import ConsumerRecord, Kind
from odradek.broker.groups.consumer.turn import ConsumerTurn, Surroundings
from odradek.broker.groups.kinds import GroupsOfKind
from odradek.broker.groups.modern.topics import TopicHashes, TopicView
from odradek.broker.groups.modern.unstored import Unstored
from odradek.broker.groups.records import GroupRecord
from odradek.broker.groups.state import ClassicGroup, GroupState, Turn
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.leave_group import MemberIdentity
from odradek.protocol.messages.sync_group import SyncGroupRequest


class ConsumerGroups:
    """Owns the consumer groups of a partition."""

    __slots__ = ("_classic", "_hashes", "groups", "topics", "topics_version", "unstored")

    def __init__(
        self,
        topics: TopicView,
        classic: GroupsOfKind[ClassicGroup],
        groups: GroupsOfKind[ConsumerGroup],
    ) -> None:
        """`classic` has the classic groups of the same partition: a group can change its kind."""
        self.groups = groups
        self._classic = classic
        self.topics = topics
        self._hashes = TopicHashes(topics)
        self.topics_version = topics.version()
        self.unstored = Unstored()

    def get(self, group_id: str) -> ConsumerGroup | None:
        """Return a group by its id."""
        return self.groups.get(group_id)

    def turn(self, group: ConsumerGroup, config: GroupConfig, now_ms: int) -> ConsumerTurn:
        """Begin an operation on a group."""
        around = Surroundings(self.topics, self._hashes, self.topics_version)
        return ConsumerTurn(group, config, now_ms, around)

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        config: GroupConfig,
        now_ms: int,
    ) -> list[Effect]:
        """Carry out a ConsumerGroupHeartbeat."""
        try:
            turn = self._turn_of(request, config, now_ms)
            if request.member_epoch in (LEAVING_EPOCH, LEFT_EPOCH):
                self._leave(turn, request, caller)
            else:
                heartbeats.heartbeat(turn, request, caller)
        except Refusal as error:
            return [Reply(caller.token, heartbeats.refuse(error.code, message_of(error)))]
        return self._settle(turn)

    def join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        caller: Caller,
        config: GroupConfig,
        now_ms: int,
    ) -> list[Effect]:
        """Carry out a JoinGroup."""
        turn = self.turn(group, config, now_ms)
        try:
            classic.join(turn, request, caller)
        except Refusal as error:
            refusal = responses.join_error(error.code, api_version=caller.api_version)
            return [Reply(caller.token, refusal)]
        return self._settle(turn)

    def sync(
        self,
        group: ConsumerGroup,
        request: SyncGroupRequest,
        caller: Caller,
        config: GroupConfig,
        now_ms: int,
    ) -> list[Effect]:
        """Carry out a SyncGroup."""
        turn = self.turn(group, config, now_ms)
        try:
            classic.sync(turn, request, caller)
        except Refusal as error:
            return [Reply(caller.token, responses.sync_error(error.code))]
        return self._settle(turn)

    def classic_heartbeat(
        self,
        group: ConsumerGroup,
        request: HeartbeatRequest,
        caller: Caller,
        config: GroupConfig,
        now_ms: int,
    ) -> list[Effect]:
        """Carry out a Heartbeat."""
        turn = self.turn(group, config, now_ms)
        try:
            classic.heartbeat(turn, request, caller)
        except Refusal as error:
            return [Reply(caller.token, HeartbeatResponse(error_code=error.code))]
        return self._settle(turn)

    def leave(
        self,
        group: ConsumerGroup,
        leaving: Sequence[MemberIdentity],
        caller: Caller,
        config: GroupConfig,
        now_ms: int,
    ) -> list[Effect]:
        """Carry out a LeaveGroup."""
        turn = self.turn(group, config, now_ms)
        classic.leave(turn, leaving, caller)
        return self._settle(turn)

    def timer_fired(self, timer: Timer, config: GroupConfig, now_ms: int) -> list[Effect]:
        """Act on a timer that has fired."""
        group, kind = self.get(timer.owner), timer.kind
        if group is None:
            return []
        turn = self.turn(group, config, now_ms)
        if kind is ConsumerTimer.EXPRESSIONS:
            expressions.begin_matching(turn)
            return turn.effects
        member = group.members.get(timer.member_id)
        if member is None or (kind is ConsumerTimer.REBALANCE and member.epoch == LEFT_EPOCH):
            return []
        turn.note(f"fenced member member={member.member_id} timeout={kind.value}")
        heartbeats.remove_members(turn, [member])
        return self._settle(turn)

    def expressions_matched(
        self,
        action: MatchExpressions,
        found: Mapping[str, frozenset[str]],
        config: GroupConfig,
        now_ms: int,
    ) -> list[Effect]:
        """Take in the topics that a group's expressions match."""
        group = self.get(action.group_id)
        if group is None or not group.is_resolving:
            return []
        turn = self.turn(group, config, now_ms)
        expressions.take_matched(turn, action, found)
        return self._settle(turn)

    def topic_changed(self, name: str, *, is_new: bool) -> None:
        """Mark the groups that read a topic, so that they look at its metadata again."""
        self._hashes.forget(name)
        if is_new:
            self.topics_version = self.topics.version()
        for group in self.groups.values():
            if group.is_subscribed_to(name):
                group.needs_refresh = True

    def loaded(self, config: GroupConfig, now_ms: int) -> Iterator[Effect]:
        """Begin to serve the replayed groups: every member gets its whole timeouts."""
        for group in self.groups.values():
            turn = self.turn(group, config, now_ms)
            for member in group.members.values():
                turn.watch(member)
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    turn.watch_revocation(member)
            yield from turn.effects

    def replay(self, record: ConsumerRecord, group: ConsumerGroup) -> bool:
        """Take in a record of the log; return whether it has removed the group."""
        group.apply(record)
        return record.kind is Kind.GROUP and record.value is None

    def _leave(
        self, turn: ConsumerTurn, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> None:
        group, instance_id = turn.group, request.instance_id
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if instance_id is None:
            member = checks.known_member(group, request.member_id)
        else:
            member = checks.known_instance(group, instance_id, request.member_id)
        if instance_id is not None and request.member_epoch == LEFT_EPOCH:
            heartbeats.leave_for_a_while(turn, member)
        else:
            turn.note(f"removed member member={member.member_id}: left")
            heartbeats.remove_members(turn, [member])
        turn.answer(caller, response, heartbeats.refuse)

    def _turn_of(
        self, request: ConsumerGroupHeartbeatRequest, config: GroupConfig, now_ms: int
    ) -> ConsumerTurn:
        """Begin a heartbeat in its group; a heartbeat that joins creates a missing group.

        Raises Refusal.
        """
        group_id, is_joining = request.group_id, request.member_epoch == JOINING_EPOCH
        present = self.groups.get(group_id)
        if present is not None:
            return self.turn(present, config, now_ms)
        group = self._classic.get(group_id)
        if group is None and not is_joining:
            what = "Group" if request.member_epoch < JOINING_EPOCH else "Consumer group"
            raise checks.no_such_group(f"{what} {group_id} not found.")
        if group is None:
            return self.turn(ConsumerGroup(group_id), config, now_ms)
        if not is_joining:
            raise checks.no_such_group(f"Group {group_id} is not a consumer group.")
        made = ConsumerGroup(group_id, offsets=group.offsets)
        turn = self.turn(made, config, now_ms)
        if group.state is GroupState.EMPTY:
            turn.records.append(GroupRecord(group_id, None))
            return turn
        conversion.check_upgrade(group, config)
        checks.check_size(
            group.membership.members, config.consumer_max_size, request.member_id
        )
        members = conversion.read_members(group, turn)
        expressions.check(made, Member(request.member_id), request.subscribed_topic_regex)
        names = frozenset(request.subscribed_topic_names or ())
        made.subscriptions.check_room(names.union(*(m.topics for m in members)), self.topics)
        conversion.upgrade(group, members, turn)
        turn.begun = made.members.now()
        return turn

    def _settle(self, turn: ConsumerTurn) -> list[Effect]:
        """End an operation on a consumer group, which it may have created or converted."""
        group_id, became = turn.group.group_id, turn.became
        if became is None:
            if turn.group.members and group_id not in self.groups:
                self._classic.pop(group_id, None)
                self.groups[group_id] = turn.group
            return turn.effects + self.unstored.finish(turn.records, turn.answers)
        del self.groups[group_id]
        self._classic[group_id] = became
        classic_turn = Turn(became, turn.config, turn.now_ms)
        for member in became.membership.all():
            classic_turn.restart_session(member)
        if turn.rebalance_reason is not None:
            rebalance.prepare_rebalance(classic_turn, turn.rebalance_reason)
        stored = self.unstored.finish(turn.records, turn.answers)
        return [*turn.effects, *stored, *classic_turn.effects]
