"""One operation on one consumer group: its inputs and its decisions.

A record is taken in as soon as it is decided on, so the operation continues with the changed
state. All its records are appended as one batch. So an operation must make all its checks before
its first record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from odradek.broker.coordination.effects import (
    Caller,
    CancelTimer,
    Effect,
    Note,
    StartTimer,
    Timer,
)
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.consumer.effects import ConsumerTimer
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.member import Member, MemberState
from odradek.broker.groups.consumer.records import ConsumerRecord, Kind, Value
from odradek.broker.groups.modern.spec import Assignment
from odradek.broker.groups.modern.tables import Moment
from odradek.broker.groups.modern.topics import TopicHashes, TopicView
from odradek.broker.groups.modern.unstored import Answer
from odradek.broker.groups.records import Record
from odradek.broker.groups.state import ClassicGroup
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_records import (
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings that the groups of a partition share."""

    topics: TopicView
    hashes: TopicHashes
    # The metadata's version when topics were last created.
    topics_version: int = 0


@dataclass(slots=True)
class ConsumerTurn:
    """One operation, owned by the Shard that carries it out."""

    group: ConsumerGroup
    config: GroupConfig
    now_ms: int
    around: Surroundings
    records: list[Record] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    # The classic group that this one has become, and the reason for a rebalance of it, if any.
    became: ClassicGroup | None = None
    rebalance_reason: str | None = None
    # The target assignment, if this operation has computed one. Kafka moves the member to it in
    # the order in which it was computed, even where the stored one has the same partitions.
    computed: Mapping[str, Assignment] = field(default_factory=dict)
    # The table of members at the beginning: Kafka takes in decisions when all are made.
    begun: Moment = field(init=False)

    def __post_init__(self) -> None:
        self.begun = self.group.members.now()

    def emit(self, kind: Kind, value: Value | None, name: str = "") -> None:
        """Decide on a record, and take it in."""
        record = ConsumerRecord(kind, self.group.group_id, name, value)
        self.group.apply(record)
        self.records.append(record)

    def emit_target(self, member_id: str, assignment: Assignment) -> None:
        """Decide on a member's target assignment."""
        partitions = [
            TopicPartition(topic_id=topic_id, partitions=list(some))
            for topic_id, some in assignment.items()
        ]
        value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions)
        self.emit(Kind.TARGET, value, member_id)

    def emit_current(self, member: Member) -> None:
        """Decide on a member's epochs and partitions."""
        self.emit(Kind.CURRENT, member.current(), member.member_id)

    def emit_removal(self, member_id: str) -> None:
        """Remove a member from the group; the order of the tombstones is Kafka's."""
        for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
            self.emit(kind, None, member_id)

    def raise_epoch(self) -> None:
        """Begin another epoch of the group; its target assignment must then be computed again."""
        value = ConsumerGroupMetadataValue(epoch=self.group.epoch + 1, metadata_hash=self.hash())
        self.emit(Kind.GROUP, value)
        self.note(f"raised epoch epoch={self.group.epoch}")

    def hash(self) -> int:
        """Hash the topics that the group reads."""
        return self.around.hashes.of_group(self.group.subscriptions)

    def answer(
        self,
        caller: Caller | None,
        response: object,
        refuse: Callable[[ErrorCode], object],
        timers: tuple[StartTimer, ...] = (),
    ) -> None:
        """Answer a request, if there is one, once the log has all decisions made so far."""
        if caller is not None:
            self.answers.append(Answer(caller.token, response, refuse, timers))

    def timer(self, kind: ConsumerTimer, member_id: str, delay_ms: int) -> StartTimer:
        """Return the effect that starts a timer of a member."""
        return StartTimer(Timer(self.group.group_id, kind, member_id), delay_ms)

    def start_timer(self, kind: ConsumerTimer, member_id: str, delay_ms: int) -> None:
        """Start or move a timer of a member."""
        self.effects.append(self.timer(kind, member_id, delay_ms))

    def cancel_timer(self, kind: ConsumerTimer, member_id: str) -> None:
        """Stop a timer of a member."""
        self.effects.append(CancelTimer(Timer(self.group.group_id, kind, member_id)))

    def cancel_timers(self, member_ids: Iterable[str]) -> None:
        """Stop all timers of members that have left."""
        for member_id in member_ids:
            self.group.awaited.discard(member_id)
            for kind in ConsumerTimer:
                self.cancel_timer(kind, member_id)

    def watch(self, member: Member) -> None:
        """Give a member its whole session timeout again."""
        delay_ms = self.config.consumer(self.group.group_id).session_timeout_ms
        if member.classic is not None:
            delay_ms = member.classic.session_timeout_ms
        self.start_timer(ConsumerTimer.SESSION, member.member_id, delay_ms)

    def watch_revocation(self, member: Member) -> None:
        """Start the rebalance timeout of a member that must give up partitions, else stop it."""
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            timeout_ms = member.rebalance_timeout_ms
            self.start_timer(ConsumerTimer.REBALANCE, member.member_id, timeout_ms)
        else:
            self.cancel_timer(ConsumerTimer.REBALANCE, member.member_id)

    def await_join(self, member: Member) -> None:
        """Start a classic member's rebalance timeout to join again, unless it runs already."""
        if member.member_id not in self.group.awaited:
            self.group.awaited.add(member.member_id)
            timeout_ms = member.rebalance_timeout_ms
            self.start_timer(ConsumerTimer.JOIN, member.member_id, timeout_ms)

    def stop_awaiting(self, member_id: str) -> None:
        """Note that a classic member has joined again."""
        self.group.awaited.discard(member_id)
        self.cancel_timer(ConsumerTimer.JOIN, member_id)

    def note(self, text: str, *, is_warning: bool = False) -> None:
        """Log a line, which ends with the group's id."""
        self.effects.append(Note(f"{text} group={self.group.group_id}", is_warning))
