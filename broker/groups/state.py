"""A classic group: its state, its generation, its members and its committed offsets.

        joins               all joined, or time is up        leader's assignment stored
  Empty -----> PreparingRebalance -----> CompletingRebalance -----> Stable
    ^             |   ^                      |                        |
    +-------------+   +----------------------+------------------------+
     nobody is left        a member joins, leaves, fails, or changes

A group is Dead once it is removed, or its partition is no longer served. A group without a
protocol type is a simple group: it only keeps offsets, for consumers that assign partitions
themselves.
Kafka's source: ClassicGroup, ClassicGroupState.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import field

from odradek.broker.coordination.effects import (
    Caller,
    CancelTimer,
    Effect,
    Note,
    Persist,
    Reply,
    StartTimer,
    Timer,
)
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.effects import Ticket, TimerKind
from odradek.broker.groups.membership import Member, Membership
from odradek.broker.groups.offsets import GroupOffsets
from odradek.broker.groups.records import GroupRecord, Record
from odradek.dataclass import dataclass
from odradek.protocol.compiler import decode_prefix
from odradek.protocol.errors import ProtocolError
from odradek.protocol.footprint import memory_max
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.group_metadata import GroupMetadataValue, MemberMetadata

CONSUMER_PROTOCOL_TYPE = "consumer"
_INT16_SIZE = 2


class GroupState(enum.Enum):
    """The state of a group; the value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_SOURCES = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {
        GroupState.EMPTY,
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
    },
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}


@dataclass(slots=True)
class ClassicGroup:
    """A group, owned by the Shard of its partition; changed by one operation at a time."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    # None when the group comes from a record of an old version, which has no such field.
    state_since_ms: int | None = None
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    membership: Membership = field(default_factory=Membership)
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    # The topics that the members read; None when their subscriptions cannot be decoded.
    subscribed_topics: frozenset[str] | None = None
    # A new group waits for its first members in steps, as long as new ones arrive.
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0
    member_added: bool = False

    def is_in(self, *states: GroupState) -> bool:
        """Return whether the group is in one of some states."""
        return self.state in states

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state."""
        assert self.state in _SOURCES[state], f"{self.group_id}: {self.state} to {state}"
        self.previous_state, self.state, self.state_since_ms = self.state, state, now_ms

    def start_generation(self, now_ms: int) -> None:
        """Begin a generation: members then await their assignment; without any it is Empty."""
        self.generation += 1
        if self.membership.members:
            self.protocol = self.membership.select_protocol()
            self.move_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol = None
            self.move_to(GroupState.EMPTY, now_ms)
        self.subscribed_topics = self.read_subscriptions()

    def accepts_protocols(self, protocol_type: str, names: set[str]) -> bool:
        """Return whether a member with these protocols may be in the group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and self.membership.supports_any(names)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether the group reads a topic; True for consumers with unknown topics."""
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def read_subscriptions(self) -> frozenset[str] | None:
        """Collect the members' topics, None when they do not speak the consumer protocol."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.membership.members:
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.membership.all():
                topics.update(_subscribed_topics(member.metadata(self.protocol)))
        except ProtocolError:
            return None
        return frozenset(topics)

    def record(self, assignments: Mapping[str, bytes]) -> GroupRecord:
        """Return the record of the generation."""
        protocol = self.protocol
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol or ""),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in self.membership.in_order()
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=protocol,
            leader=self.membership.leader_id,
            current_state_timestamp=-1 if self.state_since_ms is None else self.state_since_ms,
            members=members,
        )
        return GroupRecord(self.group_id, value)

    def restore(self, value: GroupMetadataValue) -> None:
        """Take on the generation of a record; the offsets stay.

        Raises ProtocolError for an impossible generation, and then leaves the group unchanged.
        """
        _check_members(value.members)
        self.membership = Membership()
        for stored in value.members:
            self.membership.add(_member(stored, value.protocol or ""))
        if value.leader is not None and value.leader in self.membership:
            self.membership.leader_id = value.leader
        timestamp_ms = value.current_state_timestamp
        self.state = GroupState.STABLE if value.members else GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_since_ms = None if timestamp_ms == -1 else timestamp_ms
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.subscribed_topics = self.read_subscriptions()


@dataclass(slots=True)
class Turn:
    """One operation on one group: its inputs, and the effects that it has decided on."""

    group: ClassicGroup
    config: GroupConfig
    now_ms: int
    effects: list[Effect] = field(default_factory=list)

    def reply(self, caller: Caller | None, response: object) -> None:
        """Answer a request, if there is one."""
        if caller is not None:
            self.effects.append(Reply(caller.token, response))

    def persist(self, record: Record, ticket: Ticket, *, is_awaited: bool = True) -> None:
        """Write a record."""
        self.effects.append(Persist((record,), ticket, is_awaited=is_awaited))

    def start_timer(self, kind: TimerKind, delay_ms: int, member_id: str = "") -> None:
        """Start or move a timer of the group."""
        timer = Timer(self.group.group_id, kind, member_id)
        self.effects.append(StartTimer(timer, delay_ms))

    def cancel_timer(self, kind: TimerKind, member_id: str = "") -> None:
        """Stop a timer of the group."""
        self.effects.append(CancelTimer(Timer(self.group.group_id, kind, member_id)))

    def restart_session(self, member: Member) -> None:
        """Give a member its whole session timeout again."""
        self.start_timer(TimerKind.SESSION, member.session_timeout_ms, member.member_id)

    def note(self, text: str, *, is_warning: bool = False) -> None:
        """Log a line, which ends with the group's id."""
        self.effects.append(Note(f"{text} group={self.group.group_id}", is_warning))


def _check_members(members: Sequence[MemberMetadata]) -> None:
    """Raise ProtocolError if two members have the same id, or the same instance id."""
    ids = [one.member_id for one in members]
    instances = [one.group_instance_id for one in members if one.group_instance_id is not None]
    for names in (ids, instances):
        if len(set(names)) < len(names):
            raise ProtocolError("a group's record has a member twice")


def _member(stored: MemberMetadata, protocol: str) -> Member:
    # Version 0 of the record had one timeout for sessions and rebalances.
    rebalance_timeout_ms = stored.rebalance_timeout
    if rebalance_timeout_ms == -1:
        rebalance_timeout_ms = stored.session_timeout
    return Member(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=stored.session_timeout,
        protocols=((protocol, stored.subscription),),
        assignment=stored.assignment,
    )


def _subscribed_topics(metadata: bytes) -> list[str]:
    """Read the topics of a subscription; every version begins with the fields of version 0."""
    if len(metadata) < _INT16_SIZE:
        raise ProtocolError("a subscription without a version")
    view = memoryview(metadata)
    limit = memory_max(len(view))
    return decode_prefix(ConsumerProtocolSubscription, 0, view, _INT16_SIZE, limit)[0].topics
