"""A member of a streams group: its process, its tasks, and its epoch.

Kafka's source: StreamsGroupMember, MemberState.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field, replace

from odradek.broker.groups.streams.tasks import (
    NOTHING_HELD,
    HeldTasks,
    listed,
    read_held,
    stored_since,
)
from odradek.broker.orders.java import utf16
from odradek.dataclass import dataclass
from odradek.protocol.messages.streams_group_records import (
    Endpoint,
    KeyValue,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    TaskIds,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
# The epoch of a static member that will come back; Kafka 4.3 has no static members yet.
LEFT_EPOCH = -2


class MemberState(enum.IntEnum):
    """The progress of a member towards its target; the number is the one in its record."""

    STABLE = 1
    UNREVOKED_TASKS = 2  # It must give up tasks.
    UNRELEASED_TASKS = 3  # It waits for tasks that others must give up.
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """A member; a change replaces it as a whole."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: tuple[str, int] | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    assigned: HeldTasks = NOTHING_HELD
    revoking: HeldTasks = NOTHING_HELD

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return whether the member has reached the target assignment of an epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def at(self, epoch: int) -> StreamsMember:
        """Return the member at another epoch."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch)

    def metadata(self) -> StreamsGroupMemberMetadataValue:
        """Return the record of the member's metadata."""
        endpoint = None
        if self.endpoint is not None:
            host, port = self.endpoint
            endpoint = Endpoint(host=host, port=port)
        return StreamsGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topology_epoch=self.topology_epoch,
            process_id=self.process_id,
            user_endpoint=endpoint,
            client_tags=[
                KeyValue(key=key, value=self.tags[key]) for key in sorted(self.tags, key=utf16)
            ],
        )

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        """Return the member with the metadata of a record."""
        endpoint = value.user_endpoint
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
            tags={one.key: one.value for one in value.client_tags},
        )

    def current(self) -> StreamsGroupCurrentMemberAssignmentValue:
        """Return the record of the member's epochs and tasks."""
        return StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            active_tasks=stored_since(self.assigned.active),
            standby_tasks=listed(TaskIds, self.assigned.standby),
            warmup_tasks=listed(TaskIds, self.assigned.warmup),
            active_tasks_pending_revocation=stored_since(self.revoking.active),
            standby_tasks_pending_revocation=listed(TaskIds, self.revoking.standby),
            warmup_tasks_pending_revocation=listed(TaskIds, self.revoking.warmup),
        )

    def with_current(
        self, value: StreamsGroupCurrentMemberAssignmentValue | None
    ) -> StreamsMember:
        """Return the member with the epochs and tasks of a record; None means it leaves."""
        if value is None:
            return replace(
                self,
                epoch=LEAVING_EPOCH,
                previous_epoch=LEAVING_EPOCH,
                assigned=NOTHING_HELD,
                revoking=NOTHING_HELD,
            )
        epoch = value.member_epoch
        return replace(
            self,
            epoch=epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=read_held(
                value.active_tasks, value.standby_tasks, value.warmup_tasks, epoch
            ),
            revoking=read_held(
                value.active_tasks_pending_revocation,
                value.standby_tasks_pending_revocation,
                value.warmup_tasks_pending_revocation,
                epoch,
            ),
        )
