"""The rebalance of a group: from its reason to the moment when all members have an assignment.

The join phase gathers the members, whose JoinGroup requests are parked. It ends when all have
come, or when the rebalance timeout has passed: absent members are then removed, except static
ones. The sync phase parks each SyncGroup until the leader's, which has the assignment, is stored.
If a rebalance begins again during the sync phase, parked requests get REBALANCE_IN_PROGRESS.

Kafka's source: GroupMetadataManager, prepareRebalance to propagateAssignment.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.coordination.effects import Caller
from odradek.broker.groups import responses
from odradek.broker.groups.effects import EmptyGroupStored, TimerKind
from odradek.broker.groups.membership import Member
from odradek.broker.groups.state import GroupState, Turn
from odradek.protocol.errors import ErrorCode

PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
# The least delay before a group of absent static members is checked again: the members' timeouts
# may be 0.
_POSTPONED_MIN_MS = 1_000


def rebalance_or_complete_join(turn: Turn, reason: str) -> None:
    """Begin a rebalance, or complete the join phase of the present one if all have come."""
    if turn.group.is_in(GroupState.EMPTY, COMPLETING, GroupState.STABLE):
        prepare_rebalance(turn, reason)
    else:
        complete_join_if_all_came(turn)


def prepare_rebalance(turn: Turn, reason: str) -> None:
    """Open the join phase; it may be over at once."""
    group = turn.group
    if group.state is COMPLETING:
        withdraw_assignments(turn, ErrorCode.REBALANCE_IN_PROGRESS)
    group.membership.pending_syncs.clear()
    turn.cancel_timer(TimerKind.SYNC)
    is_initial = group.state is GroupState.EMPTY
    group.move_to(PREPARING, turn.now_ms)
    turn.note(f"prepared rebalance generation={group.generation} reason={reason!r}")
    if is_initial:
        _begin_initial_delay(turn)
    elif group.membership.all_joined():
        complete_join(turn)
    else:
        turn.start_timer(TimerKind.JOIN, group.membership.rebalance_timeout_ms())


def complete_join_if_all_came(turn: Turn) -> None:
    """Close the join phase when no member is missing; a new group waits for its delay."""
    group = turn.group
    if (
        group.state is PREPARING
        and group.previous_state is not GroupState.EMPTY
        and group.membership.all_joined()
    ):
        complete_join(turn)


def join_timer_fired(turn: Turn) -> None:
    """Close the join phase after its timeout, or extend a new group's delay."""
    group = turn.group
    if group.state is not PREPARING:
        return
    if group.previous_state is not GroupState.EMPTY:
        complete_join(turn)
    elif group.member_added and group.initial_remaining_ms > 0:
        # More members are arriving: wait another step, up to their rebalance timeout.
        group.member_added = False
        step_ms = min(turn.config.initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = step_ms
        turn.start_timer(TimerKind.JOIN, step_ms)
    else:
        complete_join(turn)


def complete_join(turn: Turn) -> None:
    """Close the join phase, and begin a generation with the members that have come."""
    group, membership = turn.group, turn.group.membership
    turn.cancel_timer(TimerKind.JOIN)
    _drop_absent_dynamic_members(turn)
    if not membership.elect_joined_leader() and membership.members:
        # Only static members are left, and none has rejoined: their sessions may time out.
        turn.note("postponed rebalance: no member has rejoined", is_warning=True)
        delay_ms = max(membership.rebalance_timeout_ms(), _POSTPONED_MIN_MS)
        turn.start_timer(TimerKind.JOIN, delay_ms)
        return
    group.start_generation(turn.now_ms)
    if group.state is GroupState.EMPTY:
        turn.note(f"emptied group generation={group.generation}")
        turn.persist(group.record({}), EmptyGroupStored(group.group_id), is_awaited=False)
        return
    turn.note(
        f"closed join phase generation={group.generation} members={len(membership)}"
        f" leader={membership.leader_id} protocol={group.protocol}"
    )
    for member in membership.all():
        turn.reply(membership.unpark_join(member), responses.joined(group, member))
        turn.restart_session(member)
        member.is_new = False
        membership.pending_syncs.add(member.member_id)
    turn.start_timer(TimerKind.SYNC, membership.rebalance_timeout_ms())


def sync_timer_fired(turn: Turn) -> None:
    """Remove the members that have not asked for their assignment in time, and rebalance."""
    group, membership = turn.group, turn.group.membership
    if not group.is_in(COMPLETING, GroupState.STABLE) or not membership.pending_syncs:
        return
    absent = sorted(membership.pending_syncs)
    for member_id in absent:
        membership.remove(member_id)
        turn.cancel_timer(TimerKind.SESSION, member_id)
    prepare_rebalance(turn, f"removed {absent}: no SyncGroup in time")


def hand_out_assignments(turn: Turn, assignments: Mapping[str, bytes]) -> None:
    """Make the generation stable and answer the parked SyncGroups; others may come later."""
    group = turn.group
    assert group.state is COMPLETING
    for member in group.membership.all():
        member.assignment = assignments.get(member.member_id, b"")
        _answer_sync(turn, member, ErrorCode.NONE)
    group.move_to(GroupState.STABLE, turn.now_ms)
    turn.note(f"stabilized group generation={group.generation}")


def withdraw_assignments(turn: Turn, error: ErrorCode) -> None:
    """Answer the parked SyncGroups with an error; no member keeps an assignment."""
    assert turn.group.state is COMPLETING
    for member in turn.group.membership.all():
        member.assignment = b""
        _answer_sync(turn, member, error)


def remove_member(turn: Turn, member: Member) -> None:
    """Remove a member and answer its parked requests, so that it may join again."""
    membership = turn.group.membership
    gone = ErrorCode.UNKNOWN_MEMBER_ID
    join = membership.unpark_join(member)
    if join is not None:
        turn.reply(join, responses.join_error(gone, api_version=join.api_version))
    turn.reply(_unpark_sync(member), responses.sync_error(gone))
    membership.remove(member.member_id)


def park_join(turn: Turn, member: Member, caller: Caller) -> None:
    """Park a JoinGroup; refuse an earlier one of the same member, from a lost connection."""
    displaced = turn.group.membership.park_join(member, caller)
    if displaced is not None:
        error = ErrorCode.REBALANCE_IN_PROGRESS
        response = responses.join_error(error, member.member_id, api_version=displaced.api_version)
        turn.reply(displaced, response)


def park_sync(turn: Turn, member: Member, caller: Caller) -> None:
    """Park a SyncGroup; refuse an earlier one of the same member, from a lost connection."""
    displaced = _unpark_sync(member)
    turn.reply(displaced, responses.sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    member.parked_sync = caller


def fence(turn: Turn, member: Member) -> None:
    """Refuse a static member's parked requests: another process has taken its place."""
    fenced = ErrorCode.FENCED_INSTANCE_ID
    join = turn.group.membership.unpark_join(member)
    if join is not None:
        response = responses.join_error(fenced, member.member_id, api_version=join.api_version)
        turn.reply(join, response)
    turn.reply(_unpark_sync(member), responses.sync_error(fenced))


def _begin_initial_delay(turn: Turn) -> None:
    group = turn.group
    delay_ms = turn.config.initial_rebalance_delay_ms
    group.member_added = False
    group.initial_delay_ms = delay_ms
    group.initial_remaining_ms = max(group.membership.rebalance_timeout_ms() - delay_ms, 0)
    turn.start_timer(TimerKind.JOIN, delay_ms)


def _drop_absent_dynamic_members(turn: Turn) -> None:
    membership = turn.group.membership
    absent = [m for m in membership.all() if m.parked_join is None and m.instance_id is None]
    for member in absent:
        membership.remove(member.member_id)
        turn.cancel_timer(TimerKind.SESSION, member.member_id)
    if absent:
        turn.note(f"removed members that have not rejoined: {[m.member_id for m in absent]}")


def _answer_sync(turn: Turn, member: Member, error: ErrorCode) -> None:
    caller = _unpark_sync(member)
    if caller is None:
        return
    if error is ErrorCode.NONE:
        turn.reply(caller, responses.synced(turn.group, member))
    else:
        turn.reply(caller, responses.sync_error(error))
    # The session's timer had no effect while the member's request was parked.
    turn.restart_session(member)


def _unpark_sync(member: Member) -> Caller | None:
    caller, member.parked_sync = member.parked_sync, None
    return caller
