"""The consumer groups of one partition of __consumer_offsets: a part of its Shard.

As in Kafka, an operation decides on records and takes them in at once; whoever asked is answered
when the log has them. If the log refuses, memory is ahead of it, and the partition is loaded
again. Kafka's source: GroupMetadataManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from broker.coordination.effects import Caller, Effect, Persist, Reload, Timer
from broker.groups.config import GroupConfig
from broker.groups.consumer import checks, expressions, heartbeats
from broker.groups.consumer.effects import ConsumerStored, ConsumerTimer
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.member import LEAVING_EPOCH, LEFT_EPOCH, MemberState
from broker.groups.consumer.records import ConsumerRecord, Kind
from broker.groups.consumer.turn import ConsumerTurn, Surroundings
from broker.groups.modern.topics import TopicHashes, TopicView
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class ConsumerGroups:
    """Owns the consumer groups of a partition."""

    __slots__ = ("_hashes", "_unstored", "groups", "topics", "topics_version")

    def __init__(self, topics: TopicView) -> None:
        self.groups: dict[str, ConsumerGroup] = {}
        self.topics = topics
        self._hashes = TopicHashes(topics)
        self.topics_version = topics.version()
        # What the log has been asked to store and has not answered yet.
        self._unstored: deque[ConsumerStored] = deque()

    def get(self, group_id: str) -> ConsumerGroup | None:
        """Return a group by its id."""
        return self.groups.get(group_id)

    def turn(self, group: ConsumerGroup, config: GroupConfig, now_ms: int) -> ConsumerTurn:
        """Begin an operation on a group."""
        around = Surroundings(self.topics, self._hashes, self.topics_version)
        return ConsumerTurn(group, config, now_ms, around)

    def finish(self, turn: ConsumerTurn) -> list[Effect]:
        """End an operation: have its records stored, and answers given after them."""
        effects = turn.effects
        if turn.records:
            ticket = self.ticket()
            ticket.answers += turn.answers
            effects.append(Persist(tuple(turn.records), ticket))
        elif self._unstored:
            self._unstored[-1].answers += turn.answers
        else:
            effects += ConsumerStored(turn.answers).replies(ErrorCode.NONE)
        return effects

    def ticket(self) -> ConsumerStored:
        """Make the ticket of records that have been taken in and are about to be stored."""
        ticket = ConsumerStored()
        self._unstored.append(ticket)
        return ticket

    def stored(self, ticket: ConsumerStored, error: ErrorCode) -> list[Effect]:
        """Answer who has waited for records that the log has now, or has refused."""
        assert self._unstored.popleft() is ticket, "the log answers in its order"
        effects: list[Effect] = [*ticket.replies(error)]
        if error is not ErrorCode.NONE:
            effects.append(Reload())
        return effects

    def heartbeat(
        self, turn: ConsumerTurn, request: ConsumerGroupHeartbeatRequest, caller: Caller
    ) -> None:
        """Carry out a heartbeat; raises Refusal before anything has changed."""
        if request.member_epoch in (LEAVING_EPOCH, LEFT_EPOCH):
            self._leave(turn, request, caller)
        else:
            heartbeats.heartbeat(turn, request, caller)

    def timer_fired(self, turn: ConsumerTurn, timer: Timer) -> None:
        """Do what a timer was started for."""
        group, kind = turn.group, timer.kind
        if kind is ConsumerTimer.EXPRESSIONS:
            expressions.resolve(turn)
            return
        member = group.members.get(timer.member_id)
        if member is None or (kind is ConsumerTimer.REBALANCE and member.epoch == LEFT_EPOCH):
            return
        turn.note(f"fenced member member={member.member_id} timeout={kind.value}")
        heartbeats.remove_members(turn, [member])

    def topic_changed(self, name: str, *, is_new: bool) -> None:
        """Have the groups that read a topic look at it again."""
        self._hashes.forget(name)
        if is_new:
            self.topics_version = self.topics.version()
        for group in self.groups.values():
            if group.is_subscribed_to(name):
                group.needs_refresh = True

    def loaded(self, config: GroupConfig, now_ms: int) -> Iterator[Effect]:
        """Begin to serve what has been replayed: every member gets its timeouts."""
        for group in self.groups.values():
            turn = self.turn(group, config, now_ms)
            for member in group.members.values():
                turn.watch(member)
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    turn.watch_revocation(member)
            yield from turn.effects

    def replay(self, record: ConsumerRecord, group: ConsumerGroup) -> bool:
        """Take in a record of the log; tell whether it has removed the group."""
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
