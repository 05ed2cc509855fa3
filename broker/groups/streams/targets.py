"""The target assignment of a streams group: when it is computed, and for whom it changes.

Kafka's source: GroupMetadataManager.maybeUpdateStreamsTargetAssignment, TargetAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.groups.modern.targets import may_compute
from odradek.broker.groups.streams import sticky
from odradek.broker.groups.streams.configured import Condition, Configured, StatusCode
from odradek.broker.groups.streams.member import StreamsMember
from odradek.broker.groups.streams.records import Kind
from odradek.broker.groups.streams.sticky import MemberSpec, SubtopologySpec
from odradek.broker.groups.streams.tasks import NO_TASKS, Tasks
from odradek.broker.groups.streams.turn import StreamsTurn
from odradek.broker.orders.java import hash_order
from odradek.dataclass import dataclass
from odradek.protocol.messages.streams_group_records import (
    StreamsGroupTargetAssignmentMetadataValue,
)


@dataclass(frozen=True, slots=True)
class Target:
    """The target assignment of a member, and its epoch."""

    epoch: int
    tasks: Tasks


def update(
    turn: StreamsTurn,
    epoch: int,
    configured: Configured,
    standbys: int,
    updated: StreamsMember | None = None,
) -> Target:
    """Compute the target assignment of an epoch if it is due; return the target of a member.

    `updated` is the member with the changes of this operation, None if there is no such member.
    """
    group, member_id = turn.group, updated.member_id if updated else ""
    if turn.is_delayed:
        detail = "Assignment delayed due to the configured initial rebalance delay."
        turn.conditions.append(Condition(StatusCode.ASSIGNMENT_DELAYED, detail))
        return Target(group.target_epoch, NO_TASKS)
    last = Target(group.target_epoch, group.targets.get(member_id, NO_TASKS))
    if group.target_epoch >= epoch:
        return last
    if not may_compute(group.computed_ms, turn.config.assignment_interval_ms, turn.now_ms):
        detail = "Assignment delayed due to the configured assignment interval."
        turn.conditions.append(Condition(StatusCode.ASSIGNMENT_DELAYED, detail))
        return last
    specs = _members(turn, updated)
    computed: Mapping[str, Tasks] = {}
    if configured.subtopologies is not None and configured.is_ready:
        subtopologies = [
            SubtopologySpec(name, one.task_count, bool(one.changelogs))
            for name, one in configured.subtopologies.items()
        ]
        computed = sticky.assign(specs, subtopologies, standbys)
    for name in specs:
        target = computed.get(name, NO_TASKS)
        present = group.targets.get(name)
        if present is None or present != target:
            turn.emit(Kind.TARGET, target.stored(), name)
    turn.emit(
        Kind.TARGET_EPOCH,
        StreamsGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=turn.now_ms
        ),
    )
    turn.note(f"computed target assignment epoch={epoch} assignor={sticky.NAME}")
    return Target(epoch, computed.get(member_id, NO_TASKS))


def _members(turn: StreamsTurn, updated: StreamsMember | None) -> Mapping[str, MemberSpec]:
    """Return the members in the order of the map that Kafka copies them into."""
    members = {name: turn.group.members[name] for name in turn.group.members.in_order()}
    if updated is not None:
        members[updated.member_id] = updated
    return {
        name: MemberSpec(members[name].process_id, turn.group.targets.get(name, NO_TASKS))
        for name in hash_order(members)
    }
