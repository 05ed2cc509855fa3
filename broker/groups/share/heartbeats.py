"""ShareGroupHeartbeat: a member enters a share group, follows its assignment, and leaves.

The consequences of a heartbeat are decided in four steps: the group's epoch, the target
assignment, the member's step to it, and the partitions that need state before an assignment.

Kafka's source: GroupMetadataManager.shareGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from odradek.broker.coordination.effects import Caller
from odradek.broker.errors import Refusal
from odradek.broker.groups.modern.spec import GroupSpec, MemberSpec
from odradek.broker.groups.modern.tables import in_map_order
from odradek.broker.groups.modern.targets import may_compute
from odradek.broker.groups.share import simple
from odradek.broker.groups.share.member import JOINING_EPOCH, LEAVING_EPOCH, ShareMember
from odradek.broker.groups.share.partitions import Begun, StatePartitions, in_order
from odradek.broker.groups.share.records import Kind
from odradek.broker.groups.share.turn import ShareTurn
from odradek.broker.orders.java import hash_order, hash_set_order
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.messages.share_group_metadata import (
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    TopicPartition,
)

_NO_STATE = StatePartitions()


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat, and the partitions whose state the coordinator must begin."""

    response: ShareGroupHeartbeatResponse
    to_begin: Mapping[bytes, Begun]
    group_epoch: int = 0


def refuse(error: ErrorCode, message: str | None = None) -> HeartbeatAnswer:
    """Return the refusal of a heartbeat."""
    response = ShareGroupHeartbeatResponse(error_code=error, error_message=message)
    return HeartbeatAnswer(response, {})


def problem(request: ShareGroupHeartbeatRequest) -> str | None:
    """Return the error message of a heartbeat that is invalid in any group, else None."""
    if not request.member_id.strip():
        return "MemberId can't be empty."
    if not request.group_id.strip():
        return "GroupId can't be empty."
    if request.rack_id is not None and not request.rack_id.strip():
        return "RackId can't be empty."
    if request.member_epoch == JOINING_EPOCH:
        if not request.subscribed_topic_names:
            return "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVING_EPOCH:
        return "MemberEpoch is invalid."
    return None


def heartbeat(turn: ShareTurn, request: ShareGroupHeartbeatRequest, caller: Caller) -> None:
    """Carry out a heartbeat that joins or stays; raises Refusal before any change."""
    group, member_id = turn.group, request.member_id
    if len(group.members) >= turn.config.members_max and member_id not in group.members:
        message = (
            "The share group has reached its maximum capacity of "
            f"{turn.config.members_max} members."
        )
        raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, message)
    member = _identify(turn, request)
    is_behind = group.targets.epoch >= group.epoch and _is_assignment_pending(turn)
    updated = _updated(member, request, caller)
    group.subscriptions.check_room(updated.topics - member.topics, turn.topics)
    has_changed = is_behind
    if updated != member or member_id not in group.members:
        turn.emit(Kind.MEMBER, updated.metadata(), member_id)
        has_changed |= updated.topics != member.topics
    if has_changed or group.needs_refresh:
        has_changed |= turn.hash() != group.metadata_hash
        if has_changed:
            turn.raise_epoch()
        group.needs_refresh = False
    _update_targets(turn)
    moved = _reconcile(turn, group.members[member_id], again=has_changed)
    turn.watch(member_id)
    response = ShareGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=turn.config.heartbeat_interval_ms,
    )
    is_full = request.member_epoch == JOINING_EPOCH or request.subscribed_topic_names is not None
    if is_full or _numbers(moved) != _numbers(member):
        response.assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=in_order(moved.assigned[topic_id]))
                for topic_id in in_map_order(moved.assigned)
            ]
        )
    to_begin = _to_begin(turn)
    if to_begin:
        turn.emit_partitions((group.partitions or _NO_STATE).begin(to_begin))
    answer = HeartbeatAnswer(response, to_begin, group.epoch)
    turn.answer(caller.token, answer, refuse)


def leave(turn: ShareTurn, request: ShareGroupHeartbeatRequest, caller: Caller) -> None:
    """Remove a member that leaves; raises Refusal."""
    member = _known(turn, request.member_id)
    turn.note(f"removed member member={member.member_id}: left")
    remove(turn, member.member_id)
    response = ShareGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch
    )
    turn.answer(caller.token, HeartbeatAnswer(response, {}), refuse)


def remove(turn: ShareTurn, member_id: str) -> None:
    """Remove a member from the group."""
    for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
        turn.emit(kind, None, member_id)
    turn.raise_epoch()
    turn.unwatch(member_id)


def _identify(turn: ShareTurn, request: ShareGroupHeartbeatRequest) -> ShareMember:
    epoch = request.member_epoch
    if epoch == JOINING_EPOCH:
        return turn.group.members.get(request.member_id) or ShareMember(request.member_id)
    member = _known(turn, request.member_id)
    head = (
        "The share group member has a {} member epoch "
        f"({epoch}) than the one known by the group coordinator ({member.epoch})"
    )
    tail = "The member must abandon all its partitions and rejoin."
    if epoch > member.epoch:
        raise Refusal(ErrorCode.FENCED_MEMBER_EPOCH, f"{head.format('greater')}. {tail}")
    if epoch < member.epoch and epoch != member.previous_epoch:
        message = (
            f"{head.format('smaller')}, and it does not match the previous member epoch "
            f"({member.previous_epoch}). {tail}"
        )
        raise Refusal(ErrorCode.FENCED_MEMBER_EPOCH, message)
    return member


def _known(turn: ShareTurn, member_id: str) -> ShareMember:
    member = turn.group.members.get(member_id)
    if member is None:
        message = f"Member {member_id} is not a member of group {turn.group.group_id}."
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member


def _updated(
    member: ShareMember, request: ShareGroupHeartbeatRequest, caller: Caller
) -> ShareMember:
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        topics=member.topics if names is None else frozenset(names),
        client_id=caller.client_id,
        client_host=caller.client_host,
    )


def _is_assignment_pending(turn: ShareTurn) -> bool:
    """Return whether partitions have state, but are not assigned yet."""
    group = turn.group
    if not group.members or group.partitions is None:
        return False
    assigned: dict[bytes, set[int]] = {}
    for assignment in group.targets.by_member.values():
        for topic_id, partitions in assignment.items():
            assigned.setdefault(topic_id, set()).update(partitions)
    return any(
        one.name in group.subscriptions and assigned.get(topic_id, set()) != set(one.partitions)
        for topic_id, one in group.partitions.initialized.items()
    )


def _update_targets(turn: ShareTurn) -> None:
    """Compute the target assignment of the group's epoch, if it is due."""
    group = turn.group
    interval_ms = turn.config.assignment_interval_ms
    if group.targets.epoch >= group.epoch:
        return
    if not may_compute(group.targets.computed_ms, interval_ms, turn.now_ms):
        return
    begun = (group.partitions or _NO_STATE).initialized
    spec = _spec(turn)
    computed = simple.assign(
        spec, lambda topic_id, number: topic_id in begun and number in begun[topic_id].partitions
    )
    for member_id, assignment in list(group.targets.changes(spec.members, computed)):
        parts = [
            TopicPartition(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in assignment.items()
        ]
        value = ShareGroupTargetAssignmentMemberValue(topic_partitions=parts)
        turn.emit(Kind.TARGET, value, member_id)
    turn.emit(
        Kind.TARGET_EPOCH,
        ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=group.epoch, assignment_timestamp=turn.now_ms
        ),
    )
    turn.note(f"computed target assignment epoch={group.epoch} assignor={simple.NAME}")


def _spec(turn: ShareTurn) -> GroupSpec:
    group, topics = turn.group, turn.topics
    return GroupSpec(
        members={
            member_id: MemberSpec(
                topics=_topic_ids(turn, group.members[member_id]),
                named_count=len(group.members[member_id].topics),
                instance_id=None,
                assignment=group.targets.of(member_id),
            )
            for member_id in group.members.copied(turn.begun)
        },
        is_homogeneous=group.subscriptions.are_alike(len(group.members)),
        partition_count=lambda topic_id: topics.partition_count(topics.name_of(topic_id) or ""),
        is_assigned=group.targets.is_assigned,
    )


def _topic_ids(turn: ShareTurn, member: ShareMember) -> tuple[bytes, ...]:
    """Return the ids of the existing topics that a member reads, in Java's order."""
    found = (turn.topics.id_of(name) for name in hash_set_order(member.topics))
    return tuple(topic_id for topic_id in found if topic_id is not None)


def _reconcile(turn: ShareTurn, member: ShareMember, *, again: bool) -> ShareMember:
    """Move a member to its target; return the changed member."""
    targets = turn.group.targets
    subscribed = set(_topic_ids(turn, member))
    moved = member.moved(
        targets.epoch, targets.of(member.member_id), subscribed, again=again
    )
    if moved.epoch != member.epoch or _numbers(moved) != _numbers(member):
        turn.emit(Kind.CURRENT, moved.current(), moved.member_id)
    return moved


def _numbers(member: ShareMember) -> Mapping[bytes, frozenset[int]]:
    return {topic_id: frozenset(some) for topic_id, some in member.assigned.items()}


def _to_begin(turn: ShareTurn) -> Mapping[bytes, Begun]:
    """List the partitions without state, of the topics that the group reads."""
    group = turn.group
    retry_ms = turn.config.initialize_retry_ms
    known = (group.partitions or _NO_STATE).known(turn.now_ms, retry_ms)
    to_begin = {}
    for name in hash_order(group.subscriptions):
        topic_id = turn.topics.id_of(name)
        if topic_id is None:
            continue
        count = turn.topics.partition_count(name)
        begun = known[topic_id].partitions if topic_id in known else frozenset()
        if len(begun) < count:
            missing = frozenset(range(count)) - begun
            to_begin[topic_id] = Begun(name, missing, turn.now_ms)
    return to_begin
