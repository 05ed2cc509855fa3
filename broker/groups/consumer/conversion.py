"""Changes of a group's protocol while it has members (group.consumer.migration.policy).

The first member that joins a classic group by the consumer protocol turns it into a consumer
group: the others stay as classic members, with their assignments. When the last member of the
consumer protocol has left, the group becomes a classic group again, and rebalances.

Kafka's source: GroupMetadataManager.convertToConsumerGroup and convertToClassicGroup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from odradek.broker.coordination.effects import Reply
from odradek.broker.errors import Refusal
from odradek.broker.groups import responses
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.consumer import checks, embedded
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.member import ClassicPart, Member
from odradek.broker.groups.consumer.records import ConsumerRecord, Kind
from odradek.broker.groups.consumer.turn import ConsumerTurn
from odradek.broker.groups.membership import Member as ClassicMember
from odradek.broker.groups.records import GroupRecord, Record
from odradek.broker.groups.state import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_group_records import (
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)


def check_upgrade(group: ClassicGroup, config: GroupConfig) -> None:
    """Raise Refusal when a classic group cannot become a consumer group."""
    head = f"Cannot upgrade classic group {group.group_id} to consumer group because"
    if not config.may_upgrade:
        raise checks.no_such_group(f"{head} online upgrade is disabled.")
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise checks.no_such_group(
            f"{head} the group does not use the consumer embedded protocol."
        )
    if len(group.membership) > config.consumer_max_size:
        raise checks.no_such_group(
            f"{head} the group size exceeds the consumer group maximum size."
        )


def read_members(group: ClassicGroup, turn: ConsumerTurn) -> list[Member]:
    """Return a classic group's members as members of a consumer group; raises Refusal."""
    if group.protocol is None:
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    head = f"Cannot upgrade classic group {group.group_id} to consumer group because"
    try:
        return [_as_consumer(turn, group, member) for member in group.membership.in_order()]
    except ProtocolError as error:
        raise checks.no_such_group(
            f"{head} the embedded consumer protocol is malformed."
        ) from error


def upgrade(group: ClassicGroup, members: Collection[Member], turn: ConsumerTurn) -> None:
    """Turn a classic group's members into those of a consumer group, at its generation."""
    _dismiss(group, turn)
    turn.records.append(GroupRecord(group.group_id, None))
    targets = {m.member_id: {t: tuple(sorted(p)) for t, p in m.assigned.items()} for m in members}
    for member in members:
        turn.emit(Kind.MEMBER, member.metadata(), member.member_id)
    generation = group.generation
    turn.emit(
        Kind.GROUP, ConsumerGroupMetadataValue(epoch=generation, metadata_hash=turn.hash())
    )
    for member_id, assignment in targets.items():
        turn.emit_target(member_id, assignment)
    turn.emit(
        Kind.TARGET_EPOCH,
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=generation),
    )
    for member in members:
        turn.emit_current(member)
        turn.watch(member)
    turn.note("converted classic group to consumer group")


def may_downgrade(turn: ConsumerTurn, gone: Collection[Member]) -> bool:
    """Return whether a group becomes a classic group when some members have left."""
    group, config = turn.group, turn.config
    left = len(group.members) - len(gone)
    classic = group.classic_count - sum(member.classic is not None for member in gone)
    if not (classic == left and left > 0 and config.may_downgrade and left <= config.max_size):
        return False
    leaving = {member.member_id for member in gone}
    return _agree(one for one in group.members.values() if one.member_id not in leaving)


def may_downgrade_for(turn: ConsumerTurn, replaced: Member, updated: Member) -> bool:
    """Return whether a group becomes a classic group when a classic member replaces another."""
    group, config = turn.group, turn.config
    others_are_classic = group.classic_count == len(group.members) - 1
    return (
        others_are_classic
        and replaced.classic is None
        and config.may_downgrade
        and len(group.members) <= config.max_size
        and _agree([updated, *(one for one in group.members.values() if one is not replaced)])
    )


def _agree(members: Iterable[Member]) -> bool:
    """Return whether classic members have a common protocol, with metadata that can be decoded.

    A coordinator of consumer groups reads only the metadata of a member's first protocol, and
    the log may contain any bytes. Kafka then refuses the request that removes the last other
    member; here that member is removed, and the group stays a consumer group.
    """
    parts = [member.classic for member in members if member.classic is not None]
    shared = set.intersection(*({name for name, _ in part.protocols} for part in parts))
    try:
        for part in parts:
            for name, metadata in part.protocols:
                if name in shared:
                    embedded.version_of(metadata)
    except ProtocolError:
        return False
    return bool(shared)


def downgrade(turn: ConsumerTurn, gone: Collection[str], *, reason: str | None) -> None:
    """Turn a consumer group whose remaining members are all classic into a classic group.

    With a reason the group rebalances.
    """
    group = turn.group
    made = ClassicGroup(
        group.group_id,
        state=GroupState.STABLE,
        state_since_ms=turn.now_ms,
        generation=group.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        offsets=group.offsets,
    )
    for member in group.members.values():
        if member.member_id not in gone:
            made.membership.add(_as_classic(member))
    made.protocol = made.membership.select_protocol()
    for classic in made.membership.all():
        version = embedded.version_of(classic.metadata(made.protocol))
        classic.assignment = embedded.write_assignment(
            turn.around.topics, group.targets.of(classic.member_id), version
        )
    made.subscribed_topics = made.read_subscriptions()
    turn.records += tombstones(group)
    turn.records.append(made.record({m.member_id: m.assignment for m in made.membership.all()}))
    turn.became, turn.rebalance_reason = made, reason
    turn.cancel_timers(group.members)
    turn.note("converted consumer group to classic group")


def tombstones(group: ConsumerGroup) -> list[Record]:
    """List the tombstones that remove a group from the log, in Kafka's order."""
    group_id, members = group.group_id, list(group.members)
    named = [
        *((Kind.CURRENT, member_id) for member_id in members),
        *((Kind.TARGET, member_id) for member_id in members),
        (Kind.TARGET_EPOCH, ""),
        *((Kind.MEMBER, member_id) for member_id in members),
        *((Kind.EXPRESSION, expression) for expression in group.resolved),
        (Kind.TOPICS, ""),
        (Kind.GROUP, ""),
    ]
    return [ConsumerRecord(kind, group_id, name, None) for kind, name in named]


def _dismiss(group: ClassicGroup, turn: ConsumerTurn) -> None:
    """Answer the members that wait for a rebalance, so that they join again."""
    error = ErrorCode.REBALANCE_IN_PROGRESS
    for member in group.membership.all():
        join = group.membership.unpark_join(member)
        if join is not None:
            version = join.api_version
            refusal = responses.join_error(error, member.member_id, api_version=version)
            turn.effects.append(Reply(join.token, refusal))
        sync, member.parked_sync = member.parked_sync, None
        if sync is not None:
            turn.effects.append(Reply(sync.token, responses.sync_error(error)))


def _as_consumer(turn: ConsumerTurn, group: ClassicGroup, member: ClassicMember) -> Member:
    subscription = embedded.read_subscription(member.metadata(group.protocol or ""))
    assignment = embedded.read_assignment(member.assignment)
    if assignment.user_data:
        raise checks.no_such_group(
            f"Cannot upgrade classic group {group.group_id} to consumer group because an "
            "unsupported custom assignor is in use. Please refer to the documentation or switch "
            "to a default assignor before re-attempting the upgrade."
        )
    owned = embedded.by_id(turn.around.topics, assignment.assigned_partitions)
    return Member(
        member_id=member.member_id,
        epoch=group.generation,
        previous_epoch=group.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        assigned={
            topic_id: dict.fromkeys(sorted(some), group.generation)
            for topic_id, some in owned.items()
        },
        classic=ClassicPart(member.session_timeout_ms, member.protocols),
    )


def _as_classic(member: Member) -> ClassicMember:
    assert member.classic is not None, "only classic members are left"
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=member.classic.protocols,
    )
