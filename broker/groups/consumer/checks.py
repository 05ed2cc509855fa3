"""Checks requests to consumer groups; the error messages are Kafka's.

Kafka's source: the throwIf... methods of GroupMetadataManager, and
GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.broker.errors import Refusal
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEFT_EPOCH,
    Held,
    Member,
    MemberState,
)
from odradek.broker.groups.consumer.reconcile import Owned
from odradek.broker.groups.modern.records import check_key_names
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

# From this version on, members create their own ids (KIP-1082).
_OWN_ID_VERSION = 1


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]
) -> None:
    """Raise Refusal for a heartbeat that is invalid in any group."""
    check_key_names(request.group_id, request.member_id, request.subscribed_topic_regex or "")
    epoch = request.member_epoch
    if api_version >= _OWN_ID_VERSION or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH:
        _refuse_empty(request.member_id, "MemberId")
    _refuse_empty(request.group_id, "GroupId")
    _refuse_empty(request.instance_id, "InstanceId")
    _refuse_empty(request.rack_id, "RackId")
    if epoch == JOINING_EPOCH:
        _check_joining(request)
    elif epoch == LEFT_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEFT_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def check_size(members: Mapping[str, object], size_max: int, member_id: str) -> None:
    """Raise Refusal when a group has no room for another member."""
    if len(members) >= size_max and member_id not in members:
        raise Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {size_max} members.",
        )


def known_member(group: ConsumerGroup, member_id: str) -> Member:
    """Return the member with an id; raise Refusal when there is none."""
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def known_instance(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    """Return the member that has both an instance id and a member id.

    Raises Refusal when no member has the instance id, or a member with another id has it.
    """
    member = group.static_member(instance_id)
    if member is None:
        raise unknown_member(f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def check_epoch(member: Member, epoch: int, owned: Owned | None) -> None:
    """Raise Refusal for a request whose epoch is not that of its member.

    A request to join is always accepted. So is the member's previous epoch, if the member owns
    only partitions that are assigned to it: the answer with the next epoch may have been lost.
    """
    if epoch == JOINING_EPOCH or epoch == member.epoch:
        return
    is_previous = epoch < member.epoch and epoch == member.previous_epoch
    if is_previous and owned is not None and _is_within(owned, member.assigned):
        return
    comparison = "greater" if epoch > member.epoch else "smaller"
    raise Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({epoch}) than the one known "
        f"by the group coordinator ({member.epoch}). The member must abandon all its partitions "
        "and rejoin.",
    )


def check_state(member: Member, owned: Owned | None) -> None:
    """Raise Refusal for a member in a state that only a newer Kafka knows.

    A member that reports an empty list of partitions is accepted: it has none to abandon.
    """
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its "
            "partitions and rejoin.",
        )


def check_released(member: Member, member_id: str) -> None:
    """Raise Refusal unless the member whose instance id `member_id` wants to take has left."""
    if member.epoch != LEFT_EPOCH:
        raise Refusal(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {member.instance_id} cannot join the "
            f"group because the instance id is owned by {member.member_id} member.",
        )


def unknown_member(message: str) -> Refusal:
    """Return the refusal of a request from a client that is not a member."""
    return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, message)


def no_such_group(message: str) -> Refusal:
    """Return the refusal of a request to a group that does not exist or is of another type."""
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _refuse_empty(value: str | None, name: str) -> None:
    # Kafka regards a text of spaces as empty, too.
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def _is_within(owned: Owned, held: Held) -> bool:
    return all(
        topic_id in held and partitions <= held[topic_id].keys()
        for topic_id, partitions in owned.items()
    )
