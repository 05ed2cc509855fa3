"""Raises a group's epoch after changes, computes its target assignment, and moves members to it.

The heartbeat that finds the group's epoch ahead of the target assignment computes a new one, but
not sooner than group.consumer.assignment.interval.ms after the last (KIP-1263): members that come
together are assigned together.

Kafka's source: GroupMetadataManager, updateSubscriptionMetadata, maybeUpdateTargetAssignment and
maybeReconcile.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.groups.consumer.member import LEFT_EPOCH, Member
from odradek.broker.groups.consumer.reconcile import Owned, Reconciliation, Target
from odradek.broker.groups.consumer.records import Kind
from odradek.broker.groups.consumer.turn import ConsumerTurn
from odradek.broker.groups.modern import ranges, uniform
from odradek.broker.groups.modern.spec import Assignor, GroupSpec, MemberSpec
from odradek.broker.groups.modern.targets import as_stored, may_compute
from odradek.broker.orders.java import hash_set_order
from odradek.protocol.messages.consumer_group_records import (
    ConsumerGroupTargetAssignmentMetadataValue,
)

ASSIGNORS: Mapping[str, Assignor] = {uniform.NAME: uniform.assign, ranges.NAME: ranges.assign}


def refresh(turn: ConsumerTurn, *, has_changed: bool) -> None:
    """Raise the group's epoch when its subscriptions, or topics that it reads, have changed."""
    group = turn.group
    if not has_changed and not group.needs_refresh:
        return
    group.needs_refresh = False
    if has_changed or turn.hash() != group.metadata_hash:
        turn.raise_epoch()
    if group.has_topics_record:
        turn.emit(Kind.TOPICS, None)


def update_targets(turn: ConsumerTurn, assignor: str | None, newcomer: str | None = None) -> None:
    """Compute the target assignment of the group's epoch, if it is due.

    `assignor` is the one that most members ask for, None if none does. The target of `newcomer`,
    a member that takes another's place, is stored even if it is unchanged, as in Kafka.
    """
    group = turn.group
    interval_ms = turn.config.consumer(group.group_id).assignment_interval_ms
    if group.epoch <= group.targets.epoch:
        return
    if not may_compute(group.targets.computed_ms, interval_ms, turn.now_ms):
        return
    # A record may name an unknown assignor: a Kafka broker may have had assignors of its own.
    name = turn.config.consumer_assignors[0]
    if assignor is not None and assignor in ASSIGNORS:
        name = assignor
    spec = _spec(turn)
    turn.computed = ASSIGNORS[name](spec)
    changes = list(group.targets.changes(spec.members, turn.computed, newcomer))
    for member_id, assignment in changes:
        turn.emit_target(member_id, assignment)
    turn.emit(
        Kind.TARGET_EPOCH,
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=group.epoch, assignment_timestamp=turn.now_ms
        ),
    )
    turn.note(f"computed target assignment epoch={group.epoch} assignor={name}")


def reconcile(
    turn: ConsumerTurn, member: Member, owned: Owned | None, *, has_changed: bool
) -> Member:
    """Move a member one step towards its target; return the changed member."""
    targets = turn.group.targets
    if not has_changed and member.is_reconciled_to(targets.epoch):
        return member
    computed = turn.computed.get(member.member_id)
    assignment = targets.of(member.member_id) if computed is None else as_stored(computed)
    step = Reconciliation(
        target=Target(targets.epoch, assignment),
        subscribed=frozenset(_topic_ids(turn, _names(turn, member))),
        has_subscription_changed=has_changed,
        partition_epoch=turn.group.partition_epoch,
        owned=owned,
    )
    moved = step.step(member)
    if moved != member:
        turn.emit_current(moved)
        if moved.classic is None and moved.epoch != LEFT_EPOCH:
            turn.watch_revocation(moved)
    return moved


def _spec(turn: ConsumerTurn) -> GroupSpec:
    group, topics = turn.group, turn.around.topics
    members = {}
    for member_id in group.members.copied(turn.begun):
        member = group.members[member_id]
        names = _names(turn, member)
        members[member_id] = MemberSpec(
            topics=_topic_ids(turn, names),
            named_count=len(names),
            instance_id=member.instance_id,
            assignment=group.targets.of(member_id),
        )
    return GroupSpec(
        members=members,
        is_homogeneous=group.subscriptions.are_alike(len(group.members)),
        partition_count=lambda topic_id: topics.partition_count(topics.name_of(topic_id) or ""),
        is_assigned=group.targets.is_assigned,
    )


def _names(turn: ConsumerTurn, member: Member) -> list[str]:
    """Return the names of the topics that a member reads, in the order of Kafka's UnionSet.

    The larger of its two sets is first: its own names, or the topics that its expression matches.
    """
    resolved = turn.group.resolved.get(member.expression or "")
    larger, smaller = resolved.topics if resolved else frozenset(), member.topics
    if len(smaller) > len(larger):
        larger, smaller = smaller, larger
    return hash_set_order(larger) + [one for one in hash_set_order(smaller) if one not in larger]


def _topic_ids(turn: ConsumerTurn, names: list[str]) -> tuple[bytes, ...]:
    """Return the ids of the topics that exist."""
    found = (turn.around.topics.id_of(name) for name in names)
    return tuple(topic_id for topic_id in found if topic_id is not None)
