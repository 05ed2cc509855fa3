"""SyncGroup: distributes the leader's assignment to all members of a generation.

Only the leader sends an assignment. It is stored before any member gets it, so that a restart
does not change the assignment that members have.

Kafka's source: GroupMetadataManager, classicGroupSync.
"""

from __future__ import annotations

from odradek.broker.coordination.effects import Caller
from odradek.broker.groups import rebalance, responses
from odradek.broker.groups.effects import AssignmentStored, TimerKind
from odradek.broker.groups.state import GroupState, Turn
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sync_group import SyncGroupRequest


def sync(turn: Turn, request: SyncGroupRequest, caller: Caller) -> None:
    """Park a member's request for its assignment, or answer it if the group is stable."""
    group = turn.group
    error = _problem(turn, request)
    if error is not ErrorCode.NONE:
        turn.reply(caller, responses.sync_error(error))
        return
    member = group.membership.members[request.member_id]
    if group.state is GroupState.PREPARING_REBALANCE:
        turn.reply(caller, responses.sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        return
    group.membership.pending_syncs.discard(member.member_id)
    if not group.membership.pending_syncs:
        turn.cancel_timer(TimerKind.SYNC)
    if group.state is GroupState.STABLE:
        turn.reply(caller, responses.synced(group, member))
        return
    rebalance.park_sync(turn, member, caller)
    if group.membership.leader_id == member.member_id:
        _store_assignment(turn, request)


def assignment_stored(turn: Turn, ticket: AssignmentStored, error: ErrorCode) -> None:
    """Hand out the stored assignment, or rebalance again if it could not be stored."""
    group = turn.group
    is_awaited = group.state is GroupState.COMPLETING_REBALANCE
    if not is_awaited or group.generation != ticket.generation:
        return  # Another rebalance has begun meanwhile.
    if error is ErrorCode.NONE:
        rebalance.hand_out_assignments(turn, ticket.assignments)
        return
    turn.note(f"failed to store assignment error={error.name}", is_warning=True)
    rebalance.withdraw_assignments(turn, error)
    rebalance.prepare_rebalance(turn, f"assignment not stored: {error.name}")


def _store_assignment(turn: Turn, request: SyncGroupRequest) -> None:
    group = turn.group
    sent = {a.member_id: a.assignment for a in request.assignments}
    # A member that the leader has left out gets an empty assignment.
    assignments = {m.member_id: sent.get(m.member_id, b"") for m in group.membership.all()}
    turn.note(f"received assignment generation={group.generation} leader={request.member_id}")
    ticket = AssignmentStored(group.group_id, group.generation, assignments)
    turn.persist(group.record(assignments), ticket)


def _problem(turn: Turn, request: SyncGroupRequest) -> ErrorCode:
    group = turn.group
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.membership.check(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if _differ(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _differ(asked: str | None, actual: str | None) -> bool:
    return asked is not None and actual is not None and asked != actual
