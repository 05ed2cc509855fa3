"""Heartbeats of members, their departure, and the timeout of their sessions.

Kafka's source: GroupMetadataManager, classicGroupHeartbeat, classicGroupLeave and
expireClassicGroupMemberHeartbeat.
"""

from __future__ import annotations

from odradek.broker.coordination.effects import Caller
from odradek.broker.groups import rebalance
from odradek.broker.groups.effects import TimerKind
from odradek.broker.groups.membership import Member
from odradek.broker.groups.state import GroupState, Turn
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.leave_group import (
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

# From this version of LeaveGroup on, a request names several members.
BATCH_VERSION = 3


def heartbeat(turn: Turn, request: HeartbeatRequest, caller: Caller) -> None:
    """Renew a member's session; the answer says whether the member must rejoin."""
    group = turn.group
    if group.state is GroupState.DEAD:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    else:
        error = group.membership.check(request.member_id, request.group_instance_id)
        if error is ErrorCode.NONE and request.generation_id != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
    if error is ErrorCode.NONE:
        turn.restart_session(group.membership.members[request.member_id])
        if group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    turn.reply(caller, HeartbeatResponse(error_code=error))


def leave(turn: Turn, leaving: list[MemberIdentity], caller: Caller) -> None:
    """Remove members; static ones may be named by their instance id alone (KIP-345)."""
    if turn.group.state is GroupState.DEAD:
        turn.reply(caller, leave_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    answers = [_answer(identity, _leave_one(turn, identity)) for identity in leaving]
    turn.reply(caller, left(answers, caller))
    if any(answer.error_code == ErrorCode.NONE for answer in answers):
        _go_on_without(turn, "members left")


def leave_unknown_group(leaving: list[MemberIdentity], caller: Caller) -> LeaveGroupResponse:
    """Return the answer for a group that does not exist: each member is unknown."""
    answers = [_answer(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in leaving]
    return left(answers, caller)


def leave_error(error: ErrorCode) -> LeaveGroupResponse:
    """Return the refusal of a LeaveGroup as a whole."""
    return LeaveGroupResponse(error_code=error, members=[])


def left(answers: list[MemberResponse], caller: Caller) -> LeaveGroupResponse:
    """Return the answer to a LeaveGroup; in older versions it is about one member."""
    if caller.api_version < BATCH_VERSION:
        # One member, and one error.
        return LeaveGroupResponse(error_code=answers[0].error_code, members=[])
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers)


def session_timer_fired(turn: Turn, member_id: str) -> None:
    """Remove a member that has sent no heartbeat for its session timeout."""
    group, membership = turn.group, turn.group.membership
    if member_id in membership.pending_joins:
        membership.remove(member_id)
        turn.note(f"removed pending member member={member_id}: session timed out")
        if group.state is GroupState.PREPARING_REBALANCE and membership.all_joined():
            rebalance.complete_join(turn)
        return
    member = membership.get(member_id)
    if member is None or member.keeps_session_by_waiting():
        return
    turn.note(f"removed member member={member_id}: session timed out")
    rebalance.remove_member(turn, member)
    if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        rebalance.prepare_rebalance(turn, f"{member_id} failed")
    elif group.state is GroupState.PREPARING_REBALANCE and membership.all_joined():
        rebalance.complete_join(turn)


def _go_on_without(turn: Turn, reason: str) -> None:
    if not turn.group.is_in(GroupState.EMPTY, GroupState.DEAD):
        rebalance.rebalance_or_complete_join(turn, reason)


def _leave_one(turn: Turn, identity: MemberIdentity) -> ErrorCode:
    membership, member_id = turn.group.membership, identity.member_id
    instance_id = identity.group_instance_id
    if not member_id:
        current = membership.member_by_instance.get(instance_id or "")
        if instance_id is None or current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        _take_out(turn, membership.members[current], identity)
        return ErrorCode.NONE
    if member_id in membership.pending_joins:
        membership.remove(member_id)
        turn.cancel_timer(TimerKind.SESSION, member_id)
        return ErrorCode.NONE
    error = membership.check(member_id, instance_id)
    if error is ErrorCode.NONE:
        _take_out(turn, membership.members[member_id], identity)
    return error


def _take_out(turn: Turn, member: Member, identity: MemberIdentity) -> None:
    turn.cancel_timer(TimerKind.SESSION, member.member_id)
    rebalance.remove_member(turn, member)
    turn.note(f"removed member member={member.member_id}: left, {identity.reason or 'no reason'}")


def _answer(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        error_code=error,
    )
