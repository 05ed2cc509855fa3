"""A streams group: its topology, its members, the epochs of the group and of its target.

The state comes from the records of its log. Kafka decides on all records of an operation by the
state before it, and then takes them in; so does this module.

    epoch of the group  >=  epoch of the target assignment  >=  epoch of each member
    grows when members,     grows when it is computed           grows when the member
    topology, topics or                                         has reached the target
    settings change

Kafka's source: StreamsGroup.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, cast

from odradek.broker.groups.modern.tables import Timeline
from odradek.broker.groups.modern.targets import FIRST_EPOCH, REMOVED_EPOCH
from odradek.broker.groups.offsets import GroupOffsets
from odradek.broker.groups.streams.member import StreamsMember
from odradek.broker.groups.streams.processes import Processes
from odradek.broker.groups.streams.records import Kind, StreamsRecord
from odradek.broker.groups.streams.tasks import Tasks, read_targets
from odradek.broker.groups.streams.topology import Topology
from odradek.dataclass import dataclass
from odradek.protocol.messages.list_groups import ListedGroup
from odradek.protocol.messages.streams_group_heartbeat import EndpointToPartitions
from odradek.protocol.messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)

if TYPE_CHECKING:
    from odradek.broker.groups.streams.configured import Configured

GROUP_TYPE = PROTOCOL_TYPE = "streams"

_MemberValue = StreamsGroupMemberMetadataValue | None
_EpochValue = StreamsGroupTargetAssignmentMetadataValue | None
_TargetValue = StreamsGroupTargetAssignmentMemberValue | None
_CurrentValue = StreamsGroupCurrentMemberAssignmentValue | None
_TopologyValue = StreamsGroupTopologyValue | None


class StreamsState(enum.Enum):
    """The state of a group; the value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"  # Its topics are missing or do not fit.
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True)
class Unlogged:
    """The part of a group's state that is not in the log."""

    # The topology with its numbers; None until a heartbeat has found them.
    configured: Configured | None = None
    # Topics may have changed since they were hashed.
    needs_refresh: bool = True
    # The member that asked all others to stop, until the group is empty.
    shutdown_member: str | None = None
    # Grows when a member with an endpoint has got other tasks.
    endpoint_epoch: int = 0
    # By member, the partitions of its endpoint.
    endpoints: dict[str, EndpointToPartitions] = field(default_factory=dict)


@dataclass(slots=True)
class StreamsGroup:
    """A group, owned by the StreamsGroups of its partition."""

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    # The epoch of the topology whose topics were found to fit, -1 without one.
    validated_epoch: int = 0
    last_configs: Mapping[str, str] = field(default_factory=dict)
    topology: Topology | None = None
    members: Timeline[StreamsMember] = field(default_factory=Timeline)
    target_epoch: int = FIRST_EPOCH
    # The time at which the target was computed, 0 if it was not computed yet.
    computed_ms: int = 0
    targets: dict[str, Tasks] = field(default_factory=dict)
    processes: Processes = field(default_factory=Processes)
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    unlogged: Unlogged = field(default_factory=Unlogged)
    # Whether the first assignment waits for more members.
    is_delayed: bool = False
    is_removed: bool = False

    @property
    def state(self) -> StreamsState:
        """The state of the group, derived from its epochs and members."""
        if not self.members:
            return StreamsState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return StreamsState.NOT_READY
        if self.epoch > self.target_epoch:
            return StreamsState.ASSIGNING
        if all(one.is_reconciled_to(self.target_epoch) for one in self.members.values()):
            return StreamsState.STABLE
        return StreamsState.RECONCILING

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether the group's members read a topic."""
        if not self.members or self.topology is None:
            return False
        return topic in self.topology.readers

    def uses(self, topic: str) -> bool:
        """Return whether a topic has to exist for the group."""
        return self.topology is not None and topic in self.topology.required

    def apply(self, record: StreamsRecord) -> None:
        """Take in a record that the log has, or is about to get."""
        value = record.value
        match record.kind:
            case Kind.GROUP:
                self.is_removed = value is None
                if isinstance(value, StreamsGroupMetadataValue):
                    self._apply_epoch(value)
            case Kind.MEMBER:
                self._apply_member(record.member_id, cast("_MemberValue", value))
            case Kind.TARGET_EPOCH:
                self._apply_target_epoch(cast("_EpochValue", value))
            case Kind.TARGET:
                target = cast("_TargetValue", value)
                if target is None:
                    self.targets.pop(record.member_id, None)
                else:
                    self.targets[record.member_id] = read_targets(target)
            case Kind.CURRENT:
                self._apply_current(record.member_id, cast("_CurrentValue", value))
            case Kind.TOPOLOGY:
                topology = cast("_TopologyValue", value)
                self.topology = None if topology is None else Topology.of(topology)

    def _apply_epoch(self, value: StreamsGroupMetadataValue) -> None:
        self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
        self.validated_epoch = value.validated_topology_epoch
        self.last_configs = {one.key: one.value for one in value.last_assignment_configs or ()}

    def _apply_target_epoch(self, value: _EpochValue) -> None:
        if value is None:
            self.target_epoch, self.computed_ms = REMOVED_EPOCH, 0
        else:
            self.target_epoch = value.assignment_epoch
            self.computed_ms = value.assignment_timestamp

    def _apply_member(self, member_id: str, value: _MemberValue) -> None:
        member = self.members.get(member_id)
        if value is not None:
            self._put((member or StreamsMember(member_id)).with_metadata(value))
        elif member is not None:
            self.processes.remove(member)
            self.unlogged.endpoints.pop(member_id, None)
            del self.members[member_id]
            if not self.members:
                self.unlogged.shutdown_member = None

    def _apply_current(self, member_id: str, value: _CurrentValue) -> None:
        member = self.members.get(member_id)
        if value is not None or member is not None:
            self._put((member or StreamsMember(member_id)).with_current(value))

    def _put(self, member: StreamsMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self.processes.remove(old)
        self.members[member.member_id] = member
        self.processes.add(member)
        self.unlogged.endpoints.pop(member.member_id, None)


def listed(group: StreamsGroup) -> ListedGroup:
    """Return a group's entry in a list."""
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=PROTOCOL_TYPE,
        group_state=group.state.value,
        group_type=GROUP_TYPE,
    )
