"""A share group: its members, the epochs of the group and of its target assignment.

The state comes from the records of its log alone. The decisions of an operation are records; they
are taken in here at once, by the same function that replays them at the start.

Kafka's sources: ShareGroup, ModernGroup.
"""

from __future__ import annotations

import enum
from dataclasses import field
from typing import cast

from odradek.broker.groups.modern.subscriptions import Subscriptions
from odradek.broker.groups.modern.tables import Timeline
from odradek.broker.groups.modern.targets import FIRST_EPOCH, Targets
from odradek.broker.groups.share.member import ShareMember
from odradek.broker.groups.share.partitions import LONG_AGO_MS, StatePartitions
from odradek.broker.groups.share.records import Kind, ShareRecord
from odradek.dataclass import dataclass
from odradek.protocol.messages.list_groups import ListedGroup
from odradek.protocol.messages.share_group_metadata import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)

GROUP_TYPE = PROTOCOL_TYPE = "share"

_EpochValue = ShareGroupTargetAssignmentMetadataValue | None
_TargetValue = ShareGroupTargetAssignmentMemberValue | None


class ShareState(enum.Enum):
    """The state of a group; the value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True)
class ShareGroup:
    """A group, owned by the ShareGroups of its partition; changed by `apply` alone."""

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    members: Timeline[ShareMember] = field(default_factory=Timeline)
    targets: Targets = field(default_factory=Targets)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    # The partitions with state; None until the first is noted.
    partitions: StatePartitions | None = None
    # Not in the log: topics may have changed since they were hashed.
    needs_refresh: bool = True
    is_removed: bool = False

    @property
    def state(self) -> ShareState:
        """The state of the group."""
        return ShareState.STABLE if self.members else ShareState.EMPTY

    def apply(self, record: ShareRecord, now_ms: int = LONG_AGO_MS) -> None:
        """Take in a record that the log has, or is about to get."""
        value = record.value
        match record.kind:
            case Kind.GROUP:
                self.is_removed = value is None
                if isinstance(value, ShareGroupMetadataValue):
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case Kind.MEMBER:
                metadata = cast("ShareGroupMemberMetadataValue | None", value)
                self._apply_member(record.member_id, metadata)
            case Kind.TARGET_EPOCH:
                self.targets.apply_epoch(cast("_EpochValue", value))
            case Kind.TARGET:
                self.targets.apply_member(record.member_id, cast("_TargetValue", value))
            case Kind.CURRENT:
                current = cast("ShareGroupCurrentMemberAssignmentValue | None", value)
                member = self.members.get(record.member_id)
                if current is not None or member is not None:
                    self._put((member or ShareMember(record.member_id)).with_current(current))
            case Kind.PARTITIONS:
                noted = cast("ShareGroupStatePartitionMetadataValue | None", value)
                self.partitions = StatePartitions.read(noted, now_ms) if noted else None

    def _apply_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        member = self.members.get(member_id)
        if value is not None:
            self._put((member or ShareMember(member_id)).with_metadata(value))
        elif member is not None:
            self.subscriptions.remove(member.topics)
            del self.members[member_id]

    def _put(self, member: ShareMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self.subscriptions.remove(old.topics)
        self.members[member.member_id] = member
        self.subscriptions.add(member.topics)


def listed(group: ShareGroup) -> ListedGroup:
    """Return a group's entry in a list."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=PROTOCOL_TYPE,
        group_state=group.state.value,
        group_type=GROUP_TYPE,
    )
