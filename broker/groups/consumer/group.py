"""A consumer group: its members, the epochs of the group and of its target assignment.

The state comes from the records of its log alone. The decisions of an operation are records; they
are taken in here at once, by the same function that replays them at the start.

    epoch of the group  >=  epoch of the target assignment  >=  epoch of each member
    grows when members      grows when it is computed           grows when the member
    or topics change                                            has reached the target

Kafka's source: ConsumerGroup, ModernGroup.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import cast

from odradek.broker.coordination.effects import Describable
from odradek.broker.groups.consumer.member import Held, Member
from odradek.broker.groups.consumer.records import ConsumerRecord, Kind
from odradek.broker.groups.modern.subscriptions import Subscriptions, discount
from odradek.broker.groups.modern.tables import TIMELINE_PLACES, Timeline, timeline_place
from odradek.broker.groups.modern.targets import FIRST_EPOCH, Targets
from odradek.broker.groups.offsets import GroupOffsets
from odradek.dataclass import dataclass
from odradek.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)

NOBODY = -1

_MemberValue = ConsumerGroupMemberMetadataValue | None
_EpochValue = ConsumerGroupTargetAssignmentMetadataValue | None
_TargetValue = ConsumerGroupTargetAssignmentMemberValue | None
_CurrentValue = ConsumerGroupCurrentMemberAssignmentValue | None
_ExpressionValue = ConsumerGroupRegularExpressionValue | None


class ConsumerState(enum.Enum):
    """The state of a group; the value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The topics that a regular expression has matched, with the metadata version and time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """A group, owned by the Shard of its partition; changed by `apply` alone."""

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    members: Timeline[Member] = field(default_factory=Timeline)
    static_ids: dict[str, str] = field(default_factory=dict)
    targets: Targets = field(default_factory=Targets)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    resolved: dict[str, Resolved] = field(default_factory=dict)
    assignors: Counter[str] = field(default_factory=Counter)
    classic_count: int = 0
    classic_protocols: Counter[str] = field(default_factory=Counter)
    # For each partition, the epoch of the member that has it or must give it up.
    partition_epochs: dict[tuple[bytes, int], int] = field(default_factory=dict)
    # Whether the log has a record of topics, as Kafka wrote them before 4.1.
    has_topics_record: bool = False
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    # Not in the log: topics may have changed since they were hashed.
    needs_refresh: bool = True
    is_resolving: bool = False
    # Picks the topics that may be described by the member for which expressions are being
    # matched; None means all topics.
    describable: Describable | None = None
    # Classic members whose last answer asked them to join again.
    awaited: set[str] = field(default_factory=set)

    @property
    def state(self) -> ConsumerState:
        """The state of the group, derived from its epochs and members."""
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.targets.epoch:
            return ConsumerState.ASSIGNING
        epoch = self.targets.epoch
        if all(member.is_reconciled_to(epoch) for member in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    def static_member(self, instance_id: str | None) -> Member | None:
        """Return the member of an instance."""
        member_id = self.static_ids.get(instance_id or "")
        return None if member_id is None else self.members.get(member_id)

    def partition_epoch(self, topic_id: bytes, partition: int) -> int:
        """Return the epoch of the member that has a partition, NOBODY when it is free."""
        return self.partition_epochs.get((topic_id, partition), NOBODY)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member reads a topic."""
        return topic in self.subscriptions

    def preferred_assignor(self) -> str | None:
        """Return the assignor that most members ask for, None when no member asks for one."""
        return preferred(self.assignors, None, None)

    def waits_for_others(self, member: Member) -> bool:
        """Return whether another member has not given up a partition of a member's target."""
        return any(
            partition not in member.assigned.get(topic_id, ())
            and self.partition_epoch(topic_id, partition) != NOBODY
            for topic_id, partitions in self.targets.of(member.member_id).items()
            for partition in partitions
        )

    def apply(self, record: ConsumerRecord) -> None:
        """Take in a record that the log has, or is about to get."""
        value = record.value
        match record.kind:
            case Kind.GROUP:
                if isinstance(value, ConsumerGroupMetadataValue):
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case Kind.TOPICS:
                self.has_topics_record = value is not None
            case Kind.MEMBER:
                self._apply_member(record.name, cast("_MemberValue", value))
            case Kind.TARGET_EPOCH:
                self.targets.apply_epoch(cast("_EpochValue", value))
            case Kind.TARGET:
                self.targets.apply_member(record.name, cast("_TargetValue", value))
            case Kind.CURRENT:
                self._apply_current(record.name, cast("_CurrentValue", value))
            case Kind.EXPRESSION:
                self._apply_expression(record.name, cast("_ExpressionValue", value))

    def _apply_member(self, member_id: str, value: _MemberValue) -> None:
        member = self.members.get(member_id)
        if value is not None:
            self._update((member or Member(member_id)).with_metadata(value))
        elif member is not None:
            self._count(member, -1)
            self._release(member)
            del self.members[member_id]
            if self.static_ids.get(member.instance_id or "") == member_id:
                del self.static_ids[member.instance_id or ""]

    def _apply_current(self, member_id: str, value: _CurrentValue) -> None:
        member = self.members.get(member_id)
        if value is not None or member is not None:
            self._update((member or Member(member_id)).with_current(value))

    def _apply_expression(self, expression: str, value: _ExpressionValue) -> None:
        old = self.resolved.pop(expression, None)
        new: frozenset[str] = frozenset()
        if value is not None:
            new = frozenset(value.topics)
            self.resolved[expression] = Resolved(new, value.version, value.timestamp)
        self.subscriptions.match(old.topics if old else frozenset(), new)

    def _update(self, member: Member) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._count(old, -1)
            self._release(old)
        self.members[member.member_id] = member
        self._count(member, 1)
        self._hold(member)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id

    def _count(self, member: Member, step: int) -> None:
        """Add a member to the counts (1), or remove it from them (-1)."""
        change = self.subscriptions.add if step > 0 else self.subscriptions.remove
        change(member.topics, member.expression)
        _count(self.assignors, [member.assignor] if member.assignor else [], step)
        if member.classic is not None:
            self.classic_count += step
            _count(self.classic_protocols, [name for name, _ in member.classic.protocols], step)

    def _hold(self, member: Member) -> None:
        for one in (*_each(member.assigned), *_each(member.revoking)):
            # While the group is loaded, a later owner's record may have come first.
            if self.partition_epochs.get(one, member.epoch - 1) < member.epoch:
                self.partition_epochs[one] = member.epoch

    def _release(self, member: Member) -> None:
        for one in (*_each(member.assigned), *_each(member.revoking)):
            if self.partition_epochs.get(one) == member.epoch:
                del self.partition_epochs[one]


def preferred(counts: Mapping[str, int], old: str | None, new: str | None) -> str | None:
    """Return the assignor that most members ask for, after a member's change of its own.

    With equal counts the first in Kafka's order wins: that of a TimelineHashMap with two places,
    copied into a HashMap where both names have the same place.
    """
    names = sorted(counts, key=lambda name: timeline_place(name, TIMELINE_PLACES))
    ordered = {name: counts[name] for name in names}
    if old is not None:
        ordered[old] -= 1
        if not ordered[old]:
            del ordered[old]
    if new is not None:
        # HashMap.compute puts a new key in front of its place.
        ordered = {new: 0, **ordered} if new not in ordered else ordered
        ordered[new] += 1
    return max(ordered, key=ordered.__getitem__, default=None)


def _each(held: Held) -> list[tuple[bytes, int]]:
    return [(topic_id, partition) for topic_id, some in held.items() for partition in some]


def _count(counter: Counter[str], keys: list[str], step: int) -> None:
    if step > 0:
        counter.update(keys)
    else:
        discount(counter, keys)
