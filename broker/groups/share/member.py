"""A member of a share group: its subscription, its partitions, and its epoch.

Several members may fetch the same partition, so no member waits for others: a member moves to its
target assignment in one step.

Kafka's sources: ShareGroupMember, ShareGroupAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import field, replace

from odradek.broker.groups.modern.spec import NOTHING, Assignment
from odradek.broker.groups.modern.targets import as_stored
from odradek.dataclass import dataclass
from odradek.protocol.messages.share_group_metadata import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    TopicPartitions,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
_NO_EPOCH = -1
_STABLE = 0


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member; a change replaces it as a whole."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = _NO_EPOCH
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: Assignment = field(default_factory=dict)

    def moved(
        self, epoch: int, target: Assignment, subscribed: Container[bytes], *, again: bool
    ) -> ShareMember:
        """Return the member at the target assignment of an epoch, without topics it does not read.

        A member that is at the epoch already gets its assignment again only if `again` is set.
        """
        if epoch == self.epoch and not again:
            return self
        assigned = {
            topic_id: parts for topic_id, parts in target.items() if topic_id in subscribed
        }
        if epoch == self.epoch:
            return replace(self, assigned=assigned)
        return replace(self, epoch=epoch, previous_epoch=self.epoch, assigned=assigned)

    def metadata(self) -> ShareGroupMemberMetadataValue:
        """Return the record of the member's metadata."""
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.topics),
        )

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        """Return the member with the metadata of a record."""
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
        )

    def current(self) -> ShareGroupCurrentMemberAssignmentValue:
        """Return the record of the member's epochs and partitions."""
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=_STABLE,
            assigned_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(parts))
                for topic_id, parts in self.assigned.items()
            ],
        )

    def with_current(self, value: ShareGroupCurrentMemberAssignmentValue | None) -> ShareMember:
        """Return the member with the epochs and partitions of a record; None means it leaves."""
        if value is None:
            gone = LEAVING_EPOCH
            return replace(self, epoch=gone, previous_epoch=gone, assigned=NOTHING)
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=as_stored(
                {one.topic_id: one.partitions for one in value.assigned_partitions}
            ),
        )
