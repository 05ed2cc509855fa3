"""Checks of heartbeats of streams groups; the error messages are Kafka's.

Kafka's source: GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsInvalid and
throwIf...IsUsingUnsupportedFeatures, and the throwIfStreams... methods of GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.broker.errors import Refusal
from odradek.broker.groups.modern.records import check_key_names
from odradek.broker.groups.modern.topics import TopicView
from odradek.broker.groups.streams import topology
from odradek.broker.groups.streams.configured import TASKS_MAX, Configured
from odradek.broker.groups.streams.group import StreamsGroup
from odradek.broker.groups.streams.member import JOINING_EPOCH, LEFT_EPOCH, StreamsMember
from odradek.broker.groups.streams.tasks import Partitions, by_subtopology
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    TaskIds,
)
from odradek.protocol.pacing import paced


def check_heartbeat(request: StreamsGroupHeartbeatRequest, topics: TopicView) -> None:
    """Raise Refusal for a heartbeat that is invalid in any group.

    The check pauses, and bounds the work of the group's operation, which cannot.
    """
    _check_features(request)
    _refuse_blank(request.member_id, "MemberId")
    _refuse_blank(request.group_id, "GroupId")
    _refuse_blank(request.rack_id, "RackId")
    check_key_names(request.group_id, request.member_id)
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    epoch = request.member_epoch
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        for name, some in zip(("Active", "Standby", "Warmup"), tasks, strict=True):
            if some is None or some:
                raise _invalid(f"{name}Tasks must be empty when (re-)joining.")
        if request.topology is None:
            raise _invalid("Topology must be non-null when (re-)joining.")
        topology.check(request.topology, topics)
    elif epoch == LEFT_EPOCH:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEFT_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    if any(some is not None for some in tasks) and None in tasks:
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != JOINING_EPOCH and request.topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")
    _check_tags(request)
    _check_task_count([some for some in tasks if some], topics)


def check_size(group: StreamsGroup, size_max: int) -> None:
    """Raise Refusal when a group is full. As in Kafka, its members cannot join again then."""
    if len(group.members) >= size_max:
        raise Refusal(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The streams group has reached its maximum capacity of {size_max} members.",
        )


def known_member(group: StreamsGroup, member_id: str) -> StreamsMember:
    """Return the member with an id; raise Refusal when there is none."""
    member = group.members.get(member_id)
    if member is None:
        message = f"Member {member_id} is not a member of group {group.group_id}."
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, message)
    return member


def check_epoch(member: StreamsMember, request: StreamsGroupHeartbeatRequest) -> None:
    """Raise Refusal for a heartbeat whose epoch is not that of its member.

    The previous epoch is accepted if the member owns only tasks that are assigned to it: the
    answer with the next epoch may have been lost.
    """
    epoch = request.member_epoch
    if epoch == JOINING_EPOCH or epoch == member.epoch:
        return
    assigned = member.assigned.tasks
    is_behind = epoch < member.epoch
    if (
        is_behind
        and epoch == member.previous_epoch
        and _are_within(request.active_tasks, assigned.active)
        and _are_within(request.standby_tasks, assigned.standby)
        and _are_within(request.warmup_tasks, assigned.warmup)
    ):
        return
    raise Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {'smaller' if is_behind else 'greater'} member epoch "
        f"({epoch}) than the one known by the group coordinator ({member.epoch}). The member must "
        "abandon all its partitions and rejoin.",
    )


def check_tasks(request: StreamsGroupHeartbeatRequest, configured: Configured) -> None:
    """Raise Refusal for tasks that do not exist in a topology that is ready."""
    subtopologies = configured.subtopologies or {}
    for some in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        for one in some or ():
            subtopology = subtopologies.get(one.subtopology_id)
            if subtopology is None:
                raise _invalid(
                    f"Subtopology {one.subtopology_id} does not exist in the topology."
                )
            count = subtopology.task_count
            strange = next((at for at in one.partitions if not 0 <= at < count), None)
            if strange is not None:
                raise _invalid(
                    f"Task {strange} for subtopology {one.subtopology_id} is invalid. Number of "
                    f"tasks for this subtopology: {count}"
                )


def _check_features(request: StreamsGroupHeartbeatRequest) -> None:
    if request.instance_id is not None:
        raise _invalid("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise _invalid("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise _invalid("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise _invalid("WarmupTasks are not supported yet.")
    if request.topology is not None:
        for one in paced(request.topology.subtopologies):
            if one.source_topic_regex:
                raise _invalid("Regular expressions for source topics are not supported yet.")


def _check_tags(request: StreamsGroupHeartbeatRequest) -> None:
    tags = request.client_tags or ()
    if len(tags) > topology.NAMES_MAX:
        raise _invalid(f"The client has {len(tags)} tags, which are too many.")
    if len({one.key for one in tags}) < len(tags):
        raise _invalid("A client tag comes twice.")


def _check_task_count(tasks: Sequence[Iterable[TaskIds]], topics: TopicView) -> None:
    count = sum(1 + len(one.partitions) for some in tasks for one in paced(some))
    if count <= TASKS_MAX:
        return
    if count > 2 * sum(topics.partition_count(name) for name in paced(topics.names())):
        raise _invalid(f"The member has {count} tasks, more than there are partitions.")


def _are_within(owned: Sequence[TaskIds] | None, assigned: Partitions) -> bool:
    if owned is None:
        return False
    return all(
        name in assigned and some <= assigned[name]
        for name, some in by_subtopology(owned).items()
    )


def _refuse_blank(value: str | None, name: str) -> None:
    # Kafka regards a text of spaces as empty, too.
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)
