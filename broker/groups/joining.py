"""JoinGroup: a consumer enters a group, or stays in it while the group rebalances.

A newcomer without an id gets one, and from version 4 on must ask again with it (KIP-394): only
then is it a member. A static newcomer takes the place of the former member; if the group is
stable and its protocol stays the same, without a rebalance (KIP-345, KIP-814).

Kafka's source: GroupMetadataManager, classicGroupJoin.
"""

from __future__ import annotations

from odradek.broker.coordination.effects import Caller
from odradek.broker.groups import rebalance, responses
from odradek.broker.groups.effects import EmptyGroupStored, StaticMemberStored, TimerKind
from odradek.broker.groups.membership import Member, Protocols
from odradek.broker.groups.state import ClassicGroup, GroupState, Turn
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group import JoinGroupRequest

_KNOWN_MEMBER_ID_VERSION = 4
_SKIP_ASSIGNMENT_VERSION = 9
# The most pending members of a group. Consumers come back with their ids within milliseconds, and
# one whose id was dropped asks for another. But a client that never comes back keeps its id for up
# to half an hour.
PENDING_MAX = 10_000


def join(turn: Turn, request: JoinGroupRequest, caller: Caller) -> None:
    """Add a member, park its request, or refuse it."""
    group, member_id = turn.group, request.member_id
    protocols = _protocols(request)
    if not _has_room_for(turn, member_id):
        # A known member is removed, too: in this way a group that is too large shrinks.
        group.membership.remove(member_id)
        _refuse(turn, caller, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif group.state is GroupState.DEAD:
        _refuse(turn, caller, ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)
    elif not group.accepts_protocols(request.protocol_type, {name for name, _ in protocols}):
        _refuse(turn, caller, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    elif member_id:
        _join_with_id(turn, request, protocols, caller)
    elif request.group_instance_id is not None:
        _join_static(turn, request, protocols, caller)
    else:
        _join_dynamic(turn, request, protocols, caller)


def store_new_group(turn: Turn) -> None:
    """Store a group that was created for its first member, still empty."""
    turn.persist(
        ClassicGroup(turn.group.group_id, state_since_ms=turn.now_ms).record({}),
        EmptyGroupStored(turn.group.group_id),
        is_awaited=False,
    )


def static_member_stored(turn: Turn, ticket: StaticMemberStored, error: ErrorCode) -> None:
    """Answer a static member when its new id is stored; undo the change if that failed."""
    group, membership = turn.group, turn.group.membership
    member = membership.get(ticket.member_id)
    if member is None or member.parked_join is not ticket.caller:
        return  # A rebalance has answered it meanwhile, or the member has left.
    if group.state is not GroupState.STABLE:
        return  # A rebalance has begun meanwhile and will answer it.
    membership.unpark_join(member)
    if error is not ErrorCode.NONE:
        turn.reply(
            ticket.caller, responses.join_error(error, api_version=ticket.caller.api_version)
        )
        membership.set_protocols(member, ticket.old_protocols)
        member.rebalance_timeout_ms = ticket.old_rebalance_timeout_ms
        member.session_timeout_ms = ticket.old_session_timeout_ms
        turn.cancel_timer(TimerKind.SESSION, member.member_id)
        rebalance.fence(turn, member)
        old = membership.replace_static(member, ticket.old_member_id)
        turn.restart_session(old)
        turn.note(f"kept static member member={old.member_id} error={error.name}", is_warning=True)
    elif ticket.caller.api_version >= _SKIP_ASSIGNMENT_VERSION:
        turn.reply(ticket.caller, responses.joined(group, member, skips=True))
    else:
        # With the old leader's id in the answer, the new member does not consider itself the
        # leader, and does not compute an assignment that the group does not need.
        response = responses.joined(group, member, with_members=False)
        response.leader = ticket.old_leader_id or ""
        turn.reply(ticket.caller, response)


def _join_dynamic(
    turn: Turn, request: JoinGroupRequest, protocols: Protocols, caller: Caller
) -> None:
    member_id = f"{caller.client_id}-{caller.fresh_id}"
    if caller.api_version < _KNOWN_MEMBER_ID_VERSION:
        _add_member(turn, request, member_id, protocols, caller)
        return
    pending = turn.group.membership.pending_joins
    if len(pending) >= PENDING_MAX:
        eldest = next(iter(pending))
        turn.group.membership.remove(eldest)
        turn.cancel_timer(TimerKind.SESSION, eldest)
    pending[member_id] = None
    turn.start_timer(TimerKind.SESSION, request.session_timeout_ms, member_id)
    _refuse(turn, caller, ErrorCode.MEMBER_ID_REQUIRED, member_id)


def _join_static(
    turn: Turn, request: JoinGroupRequest, protocols: Protocols, caller: Caller
) -> None:
    member_id = f"{request.group_instance_id}-{caller.fresh_id}"
    membership = turn.group.membership
    old_id = membership.member_by_instance.get(request.group_instance_id or "")
    if old_id is None:
        _add_member(turn, request, member_id, protocols, caller)
    else:
        _replace_static(turn, request, membership.members[old_id], member_id, protocols, caller)


def _join_with_id(
    turn: Turn, request: JoinGroupRequest, protocols: Protocols, caller: Caller
) -> None:
    group, membership, member_id = turn.group, turn.group.membership, request.member_id
    if member_id in membership.pending_joins:
        if request.group_instance_id is not None:
            # Only dynamic members are ever pending; Kafka fails with an exception here.
            _refuse(turn, caller, ErrorCode.UNKNOWN_SERVER_ERROR, "")
        else:
            _add_member(turn, request, member_id, protocols, caller)
        return
    error = membership.check(member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        _refuse(turn, caller, error, member_id)
        return
    member = membership.members[member_id]
    changed = member.protocols != protocols
    leads = membership.leader_id == member_id
    if group.state is GroupState.PREPARING_REBALANCE:
        _rejoin(turn, request, member, protocols, caller, "member rejoins")
    elif changed:
        _rejoin(turn, request, member, protocols, caller, f"protocols of {member_id} changed")
    elif leads and group.state is GroupState.STABLE:
        # In this way a leader asks for a rebalance without a change of the members' metadata,
        # for example because of new partitions of a topic.
        _rejoin(turn, request, member, protocols, caller, f"leader {member_id} rejoins")
    else:
        # The member has probably not received the first answer.
        turn.reply(caller, responses.joined(group, member))


def _rejoin(
    turn: Turn,
    request: JoinGroupRequest,
    member: Member,
    protocols: Protocols,
    caller: Caller,
    reason: str,
) -> None:
    _update(turn, request, member, protocols)
    rebalance.park_join(turn, member, caller)
    rebalance.rebalance_or_complete_join(turn, _explain(reason, request))


def _add_member(
    turn: Turn, request: JoinGroupRequest, member_id: str, protocols: Protocols, caller: Caller
) -> None:
    group, membership = turn.group, turn.group.membership
    if not membership.members:
        group.protocol_type = request.protocol_type
    if group.state is GroupState.PREPARING_REBALANCE and (
        group.previous_state is GroupState.EMPTY
    ):
        group.member_added = True
    member = Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols,
        is_new=True,
        parked_join=caller,
    )
    membership.add(member)
    # The member cannot send heartbeats before its answer, and the broker does not notice a client
    # that goes away while its request is parked: a long deadline removes such members.
    turn.start_timer(TimerKind.SESSION, turn.config.new_member_join_timeout_ms, member_id)
    rebalance.rebalance_or_complete_join(turn, _explain(f"{member_id} joined", request))


def _replace_static(
    turn: Turn,
    request: JoinGroupRequest,
    old: Member,
    member_id: str,
    protocols: Protocols,
    caller: Caller,
) -> None:
    group, membership = turn.group, turn.group.membership
    ticket = StaticMemberStored(
        group_id=group.group_id,
        caller=caller,
        instance_id=old.instance_id or "",
        member_id=member_id,
        old_member_id=old.member_id,
        old_leader_id=membership.leader_id,
        old_protocols=old.protocols,
        old_rebalance_timeout_ms=old.rebalance_timeout_ms,
        old_session_timeout_ms=old.session_timeout_ms,
    )
    rebalance.fence(turn, old)
    turn.cancel_timer(TimerKind.SESSION, old.member_id)
    member = membership.replace_static(old, member_id)
    _update(turn, request, member, protocols)
    turn.restart_session(member)
    rebalance.park_join(turn, member, caller)
    turn.note(f"replaced static member old={old.member_id} new={member_id}")
    if group.state is GroupState.STABLE and membership.select_protocol() == group.protocol:
        assignments = {m.member_id: m.assignment for m in membership.all()}
        turn.persist(group.record(assignments), ticket)
    else:
        # This includes the sync phase: the leader may be computing an assignment for the old id.
        reason = f"static member {member_id} replaced {old.member_id}"
        rebalance.rebalance_or_complete_join(turn, _explain(reason, request))


def _update(turn: Turn, request: JoinGroupRequest, member: Member, protocols: Protocols) -> None:
    turn.group.membership.set_protocols(member, protocols)
    member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
    member.session_timeout_ms = request.session_timeout_ms


def _has_room_for(turn: Turn, member_id: str) -> bool:
    group, membership = turn.group, turn.group.membership
    member = membership.get(member_id)
    if group.is_in(GroupState.EMPTY, GroupState.DEAD):
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        # Only members that have rejoined count: after the limit was lowered, the last are refused.
        has_joined = member is not None and member.parked_join is not None
        return has_joined or membership.parked_join_count < turn.config.max_size
    return member is not None or len(membership) < turn.config.max_size


def _refuse(turn: Turn, caller: Caller, error: ErrorCode, member_id: str = "") -> None:
    response = responses.join_error(error, member_id, api_version=caller.api_version)
    turn.reply(caller, response)


def _protocols(request: JoinGroupRequest) -> Protocols:
    # A repeated name counts once; otherwise its supporters would outnumber the members.
    return tuple({p.name: p.metadata for p in request.protocols}.items())


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    # Version 0 has one timeout for sessions and rebalances.
    if request.rebalance_timeout_ms == -1:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _explain(reason: str, request: JoinGroupRequest) -> str:
    return f"{reason}; client: {request.reason or 'not provided'}"
