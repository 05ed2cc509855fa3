"""A member of a consumer group: its subscription, its partitions, and its epoch.

The epoch of a member is that of the last target assignment that it has reached. On the way it may
have to give up partitions (they are pending revocation), and to wait for others to do so:

    Stable -> UnrevokedPartitions -> UnreleasedPartitions -> Stable
              it must give up        others must give up

Kafka's source: ConsumerGroupMember, MemberState.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field, replace

from odradek.broker.groups.modern.tables import in_map_order, in_number_order
from odradek.dataclass import dataclass
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
# The epoch of a static member that has left and whose place is kept.
LEFT_EPOCH = -2

Held = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch of its assignment, in the order of Kafka's maps."""

NOTHING_HELD: Held = {}


class MemberState(enum.IntEnum):
    """The state of a member on its way to the target assignment; the number is on disk."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    # Written by a newer version of Kafka.
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicPart:
    """The attributes that only members of the classic protocol have."""

    session_timeout_ms: int
    # Assignors by name with the subscription for each, the preferred one first.
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A member; a change replaces it as a whole."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    expression: str | None = ""
    assignor: str | None = None
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)
    classic: ClassicPart | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether the member has reached a target assignment."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def at(self, epoch: int) -> Member:
        """Return the member at another epoch; its requests may still have the former one."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch)

    def metadata(self) -> ConsumerGroupMemberMetadataValue:
        """Return the record of the member's metadata."""
        classic = None
        if self.classic is not None:
            classic = _classic_metadata(self.classic)
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            # Kafka's helper sorts the names, which are a set in memory.
            subscribed_topic_names=sorted(self.topics),
            subscribed_topic_regex=self.expression,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=classic,
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> Member:
        """Return the member with the metadata of a record."""
        classic = value.classic_member_metadata
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            expression=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=None if classic is None else _classic_part(classic),
        )

    def current(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Return the record of the member's epochs and partitions."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_stored(self.assigned),
            partitions_pending_revocation=_stored(self.revoking),
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> Member:
        """Return the member with the epochs and partitions of a record; None means it leaves."""
        if value is None:
            gone = replace(self, epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH)
            return replace(gone, assigned=NOTHING_HELD, revoking=NOTHING_HELD)
        known = value.state in set(MemberState)
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_held(value.assigned_partitions, value.member_epoch),
            revoking=_held(value.partitions_pending_revocation, value.member_epoch),
        )


def partitions_of(held: Held) -> dict[bytes, list[int]]:
    """Return partitions without their epochs."""
    return {topic_id: list(partitions) for topic_id, partitions in held.items()}


def _stored(held: Held) -> list[TopicPartitions]:
    stored = []
    for topic_id, epochs in held.items():
        stored.append(
            TopicPartitions(
                topic_id=topic_id,
                partitions=list(epochs),
                assignment_epochs=list(epochs.values()),
            )
        )
    return stored


def _held(stored: list[TopicPartitions], member_epoch: int) -> Held:
    """Read partitions; records from before Kafka 4.2 have no epochs for them."""
    held: dict[bytes, dict[int, int]] = {}
    for topic in stored:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        since = dict(zip(topic.partitions, epochs, strict=True))
        held[topic.topic_id] = {one: since[one] for one in in_number_order(since)}
    return {topic_id: held[topic_id] for topic_id in in_map_order(held)}


def _classic_metadata(part: ClassicPart) -> ClassicMemberMetadata:
    protocols = [ClassicProtocol(name=name, metadata=data) for name, data in part.protocols]
    return ClassicMemberMetadata(
        session_timeout_ms=part.session_timeout_ms, supported_protocols=protocols
    )


def _classic_part(stored: ClassicMemberMetadata) -> ClassicPart:
    protocols = {one.name: one.metadata for one in stored.supported_protocols}
    if not protocols:
        raise ProtocolError("a classic member's record names no protocol")
    return ClassicPart(stored.session_timeout_ms, tuple(protocols.items()))
