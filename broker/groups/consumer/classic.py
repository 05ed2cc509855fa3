"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup and later requests.

The coordinator assigns their partitions, too. The answer to a heartbeat makes a member join again
when it must give up partitions, may get others, or must move to another epoch. The answer to
JoinGroup has the epoch as the generation, that to SyncGroup the assignment; no member is leader.

Kafka's source: GroupMetadataManager, classicGroupJoinToConsumerGroup and the like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from odradek.broker.coordination.effects import Caller, StartTimer
from odradek.broker.errors import Refusal
from odradek.broker.groups import responses, sessions
from odradek.broker.groups.consumer import (
    checks,
    conversion,
    embedded,
    epochs,
    expressions,
    heartbeats,
)
from odradek.broker.groups.consumer.effects import ConsumerTimer
from odradek.broker.groups.consumer.group import ConsumerGroup, preferred
from odradek.broker.groups.consumer.heartbeats import Joining
from odradek.broker.groups.consumer.member import ClassicPart, Member, MemberState, partitions_of
from odradek.broker.groups.consumer.turn import ConsumerTurn
from odradek.broker.groups.modern.records import check_key_names
from odradek.broker.groups.state import CONSUMER_PROTOCOL_TYPE
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.messages.leave_group import MemberIdentity, MemberResponse
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_KNOWN_MEMBER_ID_VERSION = 4


def join(turn: ConsumerTurn, request: JoinGroupRequest, caller: Caller) -> None:
    """Carry out a JoinGroup; raises Refusal before anything has changed."""
    group, member_id = turn.group, request.member_id or caller.fresh_id
    version = caller.api_version

    def refuse(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
        return responses.join_error(error, member_id, api_version=version)

    _check_join(turn, request)
    is_newcomer = not request.member_id and request.group_instance_id is None
    if is_newcomer and version >= _KNOWN_MEMBER_ID_VERSION:
        answer = refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        turn.answer(caller, answer, refuse)
        return
    subscription = _subscription(request)
    joining = _identify(group, request, member_id)
    member, replaced = joining.member, joining.replaced
    present = group.static_member(request.group_instance_id)
    updated = _updated(member, request, subscription, caller)
    downgrades = present is not None and conversion.may_downgrade_for(turn, present, updated)
    group.subscriptions.check_room(updated.topics - member.topics, turn.around.topics)
    assignor = preferred(group.assignors, member.assignor, updated.assignor)
    if replaced is not None:
        heartbeats.replace_static(turn, replaced, member)
    was = expressions.before(group, "")
    changed = heartbeats.store_member(turn, member, updated)
    change = expressions.update(turn, member.expression, updated.expression, was, caller)
    changed = changed or change is not expressions.Change.NONE
    epochs.refresh(turn, has_changed=changed)
    owned = embedded.by_id(turn.around.topics, subscription.owned_partitions)
    is_stale = group.targets.epoch < group.epoch
    if not downgrades:
        epochs.update_targets(turn, assignor, member_id if replaced else None)
    moved = group.members[member_id]
    if not (downgrades and is_stale):
        # With a stale target the classic group rebalances anyway.
        moved = epochs.reconcile(turn, moved, owned, has_changed=changed and not downgrades)
    timers: tuple[StartTimer, ...] = ()
    if downgrades:
        text = f"Downgrade group {group.group_id} from consumer to classic with stale assignment."
        conversion.downgrade(turn, (), reason=text if is_stale else None)
    else:
        timers = _timers(turn, member_id, request)
    turn.stop_awaiting(member_id)
    response = JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=moved.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
        leader="",
        member_id=member_id,
        members=[],
    )
    turn.answer(caller, response, refuse, timers)


def sync(turn: ConsumerTurn, request: SyncGroupRequest, caller: Caller) -> None:
    """Answer with a member's assignment, or make it join first; raises Refusal."""
    group = turn.group
    member = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    classic = member.classic
    assert classic is not None, "checked"
    protocol, subscription = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.protocol_name not in (None, protocol):
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_behind = group.targets.epoch > member.epoch
    if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
        turn.await_join(member)
        turn.answer(caller, responses.sync_error(ErrorCode.REBALANCE_IN_PROGRESS), _refuse_sync)
        return
    turn.cancel_timer(ConsumerTimer.SYNC, member.member_id)
    turn.watch(member)
    response = SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=embedded.write_assignment(
            turn.around.topics,
            partitions_of(member.assigned),
            embedded.version_of(subscription),
        ),
    )
    turn.answer(caller, response, _refuse_sync)


def heartbeat(turn: ConsumerTurn, request: HeartbeatRequest, caller: Caller) -> None:
    """Renew a member's session; the answer says whether it must join again. Raises Refusal."""
    group = turn.group
    member = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    turn.watch(member)
    waits = member.state is MemberState.UNRELEASED_PARTITIONS
    must_join = (
        member.epoch < group.targets.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (waits and not group.waits_for_others(member))
    )
    error = ErrorCode.NONE
    if must_join:
        error = ErrorCode.REBALANCE_IN_PROGRESS
        turn.await_join(member)
    turn.answer(
        caller,
        HeartbeatResponse(error_code=error),
        lambda failed: HeartbeatResponse(error_code=failed),
    )


def leave(turn: ConsumerTurn, leaving: Sequence[MemberIdentity], caller: Caller) -> None:
    """Remove members of either protocol from the group."""
    answers, gone = [], {}
    for identity in leaving:
        error = ErrorCode.NONE
        try:
            member = _leaving(turn.group, identity)
            gone[member.member_id] = member
        except Refusal as refusal:
            error = refusal.code
        answers.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=error,
            )
        )
    if gone:
        heartbeats.remove_members(turn, list(gone.values()))
    turn.answer(caller, sessions.left(answers, caller), sessions.leave_error)


def _check_join(turn: ConsumerTurn, request: JoinGroupRequest) -> None:
    group, config = turn.group, turn.config
    check_key_names(request.member_id)
    if not (config.may_upgrade or config.may_downgrade):
        raise Refusal(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol because "
            "the group migration is disabled.",
        )
    checks.check_size(group.members, config.consumer_max_size, request.member_id)
    is_supported = request.protocol_type == CONSUMER_PROTOCOL_TYPE and any(
        group.classic_protocols[protocol.name] == group.classic_count
        for protocol in request.protocols
    )
    if not is_supported:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _identify(group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> Joining:
    instance_id = request.group_instance_id
    if instance_id is None:
        return Joining(group.members.get(member_id) or Member(member_id))
    if request.member_id:
        return Joining(checks.known_instance(group, instance_id, member_id))
    present = group.static_member(instance_id)
    if present is None:
        return Joining(Member(member_id))
    return Joining(heartbeats.taking_over(present, member_id), present)


def _updated(
    member: Member,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    caller: Caller,
) -> Member:
    timeout_ms, instance_id = request.rebalance_timeout_ms, request.group_instance_id
    protocols = tuple({p.name: p.metadata for p in request.protocols}.items())
    return replace(
        member,
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topics=frozenset(subscription.topics),
        expression="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=ClassicPart(request.session_timeout_ms, protocols),
    )


def _timers(
    turn: ConsumerTurn, member_id: str, request: JoinGroupRequest
) -> tuple[StartTimer, ...]:
    session_ms, sync_ms = request.session_timeout_ms, request.rebalance_timeout_ms
    return (
        turn.timer(ConsumerTimer.SESSION, member_id, session_ms),
        turn.timer(ConsumerTimer.SYNC, member_id, sync_ms),
    )


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return embedded.read_subscription(request.protocols[0].metadata)
    except ProtocolError as error:
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR) from error


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    if instance_id is None:
        member = checks.known_member(group, member_id)
    else:
        member = checks.known_instance(group, instance_id, member_id)
    if member.classic is None:
        raise checks.unknown_member(
            f"Member {member.member_id} does not use the classic protocol."
        )
    return member


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return checks.known_member(group, identity.member_id)
    if identity.member_id:
        return checks.known_instance(group, instance_id, identity.member_id)
    member = group.static_member(instance_id)
    if member is None:
        raise checks.unknown_member(f"Instance id {instance_id} is unknown.")
    return member


def _check_generation(member: Member, generation: int) -> None:
    if generation != member.epoch:
        raise Refusal(ErrorCode.ILLEGAL_GENERATION)


def _refuse_sync(error: ErrorCode) -> SyncGroupResponse:
    return responses.sync_error(error)
