"""The target assignment of a group: the future partitions of each member, and their epoch.

Kafka's source: ModernGroup, TargetAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from odradek.broker.groups.modern.spec import NOTHING, Assignment
from odradek.broker.groups.modern.tables import in_map_order, in_set_order
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from odradek.protocol.messages.consumer_group_records import (
        ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupTargetAssignmentMetadataValue,
    )
    from odradek.protocol.messages.share_group_metadata import (
        ShareGroupTargetAssignmentMemberValue,
        ShareGroupTargetAssignmentMetadataValue,
    )

    # Both kinds of groups store their targets in records with the same fields.
    EpochValue = (
        ConsumerGroupTargetAssignmentMetadataValue | ShareGroupTargetAssignmentMetadataValue
    )
    MemberValue = ConsumerGroupTargetAssignmentMemberValue | ShareGroupTargetAssignmentMemberValue

# The epoch at which a group and its target assignment begin.
FIRST_EPOCH = 1
# The epoch of a target assignment that a tombstone has removed.
REMOVED_EPOCH = -1


@dataclass(slots=True)
class Targets:
    """The target assignment of a group, which owns it."""

    epoch: int = FIRST_EPOCH
    # The time of its computation, 0 if it was not computed yet.
    computed_ms: int = 0
    by_member: dict[str, Assignment] = field(default_factory=dict)
    _owners: dict[tuple[bytes, int], str] = field(default_factory=dict)

    def of(self, member_id: str) -> Assignment:
        """Return the target of a member."""
        return self.by_member.get(member_id, NOTHING)

    def is_assigned(self, topic_id: bytes, partition: int) -> bool:
        """Return whether a partition is in the target of a member."""
        return (topic_id, partition) in self._owners

    def apply_epoch(self, value: EpochValue | None) -> None:
        """Take in a record of the epoch, or its tombstone."""
        if value is None:
            self.epoch, self.computed_ms = REMOVED_EPOCH, 0
        else:
            self.epoch, self.computed_ms = value.assignment_epoch, value.assignment_timestamp

    def apply_member(self, member_id: str, value: MemberValue | None) -> None:
        """Take in a record of a member's target, or its tombstone."""
        if value is not None:
            given = {one.topic_id: one.partitions for one in value.topic_partitions}
            self.set(member_id, as_stored(given))
        elif member_id in self.by_member:
            self.remove(member_id)

    def set(self, member_id: str, assignment: Assignment) -> None:
        """Change the target of a member."""
        for one in _partitions(self.of(member_id)):
            # Another member's new assignment may have come first.
            if self._owners.get(one) == member_id:
                del self._owners[one]
        self._owners.update(dict.fromkeys(_partitions(assignment), member_id))
        self.by_member[member_id] = assignment

    def remove(self, member_id: str) -> None:
        """Remove the target of a member."""
        self.set(member_id, NOTHING)
        del self.by_member[member_id]

    def changes(
        self,
        members: Mapping[str, object],
        computed: Mapping[str, Assignment],
        newcomer: str | None = None,
    ) -> Iterator[tuple[str, Assignment]]:
        """Iterate over the members, in their order, whose target differs from the computed one.

        They include members without a target, whose new one may be empty, and `newcomer`, which
        has the target of the member that it replaces.
        """
        for member_id in members:
            assignment = computed.get(member_id, NOTHING)
            present = self.by_member.get(member_id)
            if member_id == newcomer or present is None or not are_same(present, assignment):
                yield member_id, assignment


def as_stored(partitions: Mapping[bytes, Sequence[int]]) -> Assignment:
    """Return the partitions of a record in the order of Kafka's maps."""
    return {one: tuple(in_set_order(partitions[one])) for one in in_map_order(partitions)}


def may_compute(computed_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Return whether the last target assignment is old enough for the next one (KIP-1263)."""
    return computed_ms == 0 or interval_ms == 0 or now_ms >= computed_ms + interval_ms


def are_same(one: Assignment, other: Assignment) -> bool:
    """Return whether two assignments have the same partitions."""
    return one.keys() == other.keys() and all(
        set(partitions) == set(other[topic_id]) for topic_id, partitions in one.items()
    )


def _partitions(assignment: Assignment) -> Iterator[tuple[bytes, int]]:
    for topic_id, partitions in assignment.items():
        for partition in partitions:
            yield topic_id, partition
