"""ConsumerGroupHeartbeat: a member joins a group, follows its assignment, or leaves.

A heartbeat contains the fields of the member that changed. The answer contains the member's epoch
and, when it has changed, its assignment. Three decisions follow: the group's epoch, the target
assignment, and the member's step towards it (epochs.py).

Kafka's source: GroupMetadataManager.consumerGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from odradek.broker.coordination.effects import Caller
from odradek.broker.groups.consumer import checks, conversion, epochs, expressions
from odradek.broker.groups.consumer.group import preferred
from odradek.broker.groups.consumer.member import (
    JOINING_EPOCH,
    LEFT_EPOCH,
    NOTHING_HELD,
    Held,
    Member,
    partitions_of,
)
from odradek.broker.groups.consumer.reconcile import Owned
from odradek.broker.groups.consumer.records import Kind
from odradek.broker.groups.consumer.turn import ConsumerTurn
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


@dataclass(frozen=True, slots=True)
class Joining:
    """The sender of a heartbeat, before the heartbeat is applied."""

    member: Member
    # The static member that the sender replaces, if any.
    replaced: Member | None = None


def refuse(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """Return the refusal of a heartbeat."""
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)


def heartbeat(turn: ConsumerTurn, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> None:
    """Carry out the heartbeat of a member that joins or stays; raises Refusal before changes."""
    group = turn.group
    owned = owned_partitions(request)
    member_id = request.member_id or caller.fresh_id
    checks.check_size(group.members, turn.config.consumer_max_size, request.member_id)
    joining = _identify(turn, request, member_id, owned)
    member = joining.member
    expressions.check(group, member, request.subscribed_topic_regex)
    checks.check_state(member, owned)
    updated = _updated(member, request, caller)
    group.subscriptions.check_room(updated.topics - member.topics, turn.around.topics)
    assignor = preferred(group.assignors, member.assignor, updated.assignor)
    if joining.replaced is not None:
        replace_static(turn, joining.replaced, member)
    was = expressions.before(group, updated.expression)
    names_changed = store_member(turn, member, updated)
    change = expressions.update(turn, member.expression, updated.expression, was, caller)
    raises_epoch = names_changed or change is expressions.Change.CHANGED_AND_RESOLVED
    epochs.refresh(turn, has_changed=raises_epoch)
    epochs.update_targets(turn, assignor, member_id if joining.replaced else None)
    has_changed = names_changed or change is not expressions.Change.NONE
    moved = epochs.reconcile(turn, group.members[member_id], owned, has_changed=has_changed)
    turn.watch(moved)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=turn.config.consumer(group.group_id).heartbeat_interval_ms,
    )
    if _is_full(request) or moved.assigned != member.assigned:
        response.assignment = _assignment(moved.assigned)
    turn.answer(caller, response, refuse)


def leave_for_a_while(turn: ConsumerTurn, member: Member) -> None:
    """Let a static member leave; its place and its partitions are kept until its session ends."""
    since_zero = {topic_id: dict.fromkeys(held, 0) for topic_id, held in member.assigned.items()}
    left = replace(member, epoch=LEFT_EPOCH, assigned=since_zero, revoking=NOTHING_HELD)
    turn.emit_current(left)


def remove_members(turn: ConsumerTurn, gone: Sequence[Member]) -> None:
    """Remove members from the group, which frees their partitions.

    If only classic members are left, the group becomes a classic group.
    """
    group = turn.group
    if conversion.may_downgrade(turn, gone):
        reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
        conversion.downgrade(turn, {member.member_id for member in gone}, reason=reason)
        return
    for member in gone:
        turn.emit_removal(member.member_id)
    for expression in dict.fromkeys(member.expression for member in gone):
        if expression and not group.subscriptions.expressions[expression]:
            turn.emit(Kind.EXPRESSION, None, expression)
    turn.raise_epoch()
    turn.cancel_timers(member.member_id for member in gone)


def replace_static(turn: ConsumerTurn, old: Member, new: Member) -> None:
    """Give a static member's place, with its partitions, to a member with a new id."""
    target = turn.group.targets.of(old.member_id)
    turn.emit_removal(old.member_id)
    turn.emit(Kind.MEMBER, new.metadata(), new.member_id)
    turn.emit_target(new.member_id, target)
    turn.emit_current(new)
    turn.note(f"replaced static member old={old.member_id} new={new.member_id}")


def store_member(turn: ConsumerTurn, member: Member, updated: Member) -> bool:
    """Store a member's metadata if it has changed; return whether its topic names changed."""
    if updated != member:
        turn.emit(Kind.MEMBER, updated.metadata(), updated.member_id)
    return updated.topics != member.topics


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    """Return the partitions that a member reports as its own, None if it reports nothing."""
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, set[int]] = {}
    for topic in request.topic_partitions:
        owned.setdefault(topic.topic_id, set()).update(topic.partitions)
    return owned


def _identify(
    turn: ConsumerTurn,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    owned: Owned | None,
) -> Joining:
    group, instance_id = turn.group, request.instance_id
    is_joining = request.member_epoch == JOINING_EPOCH
    if instance_id is None:
        if is_joining:
            return Joining(group.members.get(member_id) or Member(member_id))
        member = checks.known_member(group, member_id)
        checks.check_epoch(member, request.member_epoch, owned)
        return Joining(member)
    if not is_joining:
        member = checks.known_instance(group, instance_id, member_id)
        checks.check_epoch(member, request.member_epoch, owned)
        return Joining(member)
    present = group.static_member(instance_id)
    if present is None:
        return Joining(group.members.get(member_id) or Member(member_id))
    if present.classic is None:
        checks.check_released(present, member_id)
    return Joining(taking_over(present, member_id), present)


def taking_over(present: Member, member_id: str) -> Member:
    """Return the successor of a static member: at epoch 0, with all its partitions."""
    return replace(present, member_id=member_id, epoch=0, previous_epoch=0)


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    """Return a member with the fields that a heartbeat sets; the other fields stay."""
    timeout_ms, names = request.rebalance_timeout_ms, request.subscribed_topic_names
    expression = request.subscribed_topic_regex
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if names is None else frozenset(names),
        expression=member.expression if expression is None else expression,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether a heartbeat has all fields, as after an error, and needs a full answer."""
    if request.member_epoch == JOINING_EPOCH:
        return True
    names, expression = request.subscribed_topic_names, request.subscribed_topic_regex
    subscribes = names is not None or expression is not None
    has_owned = request.topic_partitions is not None
    return request.rebalance_timeout_ms != -1 and subscribes and has_owned


def _assignment(held: Held) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in partitions_of(held).items()
        ]
    )
