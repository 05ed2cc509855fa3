"""StreamsGroupHeartbeat: a member joins a group, follows its assignment, or leaves.

The consequences of a heartbeat are decided in five steps: the member, the topology, its topics
and with them the group's epoch, the target assignment, and the member's step towards it.

Kafka's source: GroupMetadataManager.streamsGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from odradek.broker.coordination.effects import Caller
from odradek.broker.errors import Refusal
from odradek.broker.groups.streams import checks, endpoints, targets
from odradek.broker.groups.streams.configured import (
    Condition,
    Configured,
    InternalTopic,
    StatusCode,
    configure,
)
from odradek.broker.groups.streams.member import JOINING_EPOCH, StreamsMember
from odradek.broker.groups.streams.reconcile import Step
from odradek.broker.groups.streams.records import Kind
from odradek.broker.groups.streams.tasks import HeldTasks, Partitions, Tasks, by_subtopology
from odradek.broker.groups.streams.topology import Topology, to_stored
from odradek.broker.groups.streams.turn import STANDBYS, StreamsTurn
from odradek.broker.orders.java import hash_order
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_heartbeat import (
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TaskIds,
)


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat, and the internal topics that are missing."""

    response: StreamsGroupHeartbeatResponse
    missing: Mapping[str, InternalTopic]


def refuse(error: ErrorCode, message: str | None = None) -> HeartbeatAnswer:
    """Return the refusal of a heartbeat."""
    response = StreamsGroupHeartbeatResponse(error_code=error, error_message=message)
    return HeartbeatAnswer(response, {})


def heartbeat(turn: StreamsTurn, request: StreamsGroupHeartbeatRequest, caller: Caller) -> None:
    """Carry out a heartbeat that joins or stays; raises Refusal."""
    group, member_id = turn.group, request.member_id
    is_joining = request.member_epoch == JOINING_EPOCH
    if is_joining:
        checks.check_size(group, turn.config.members_max)
        member = group.members.get(member_id) or StreamsMember(member_id)
    else:
        member = checks.known_member(group, member_id)
    checks.check_epoch(member, request)
    updated = _updated(member, request, caller)
    has_changed = updated != member
    if has_changed:
        turn.emit(Kind.MEMBER, updated.metadata(), member_id)
    topology = _topology(turn, request)
    _note_stale(turn, updated)
    configured, epoch = _refresh(turn, request, topology, has_changed=has_changed)
    if not group.members:
        turn.delay_assignment()
    target = targets.update(turn, epoch, configured, turn.config.standby_count, updated)
    owned = _owned(request)
    step = Step(updated, target.tasks, target.epoch, group.processes, owned)
    moved = step.take()
    if moved != updated:
        turn.emit(Kind.CURRENT, moved.current(), member_id)
        turn.watch_revocation(moved)
    turn.watch(member_id)
    if request.shutdown_application:
        turn.unlogged.shutdown_member = turn.unlogged.shutdown_member or member_id
    response = _response(turn, request, owned, moved, moved.assigned != member.assigned)
    missing: Mapping[str, InternalTopic] = {}
    if configured.problem is not None:
        missing = configured.missing
        turn.conditions.append(configured.problem)
    _note_shutdown(turn)
    response.status = [
        Status(status_code=one.code, status_detail=one.detail) for one in turn.conditions
    ]
    turn.answer(caller.token, HeartbeatAnswer(response, missing), refuse)


def leave(turn: StreamsTurn, request: StreamsGroupHeartbeatRequest, caller: Caller) -> None:
    """Remove a member that leaves; raises Refusal."""
    member = checks.known_member(turn.group, request.member_id)
    if request.shutdown_application:
        turn.unlogged.shutdown_member = turn.unlogged.shutdown_member or request.member_id
    turn.note(f"removed member member={member.member_id}: left")
    remove(turn, member.member_id)
    response = StreamsGroupHeartbeatResponse(
        member_id=request.member_id, member_epoch=request.member_epoch, status=[]
    )
    turn.answer(caller.token, HeartbeatAnswer(response, {}), refuse)


def remove(turn: StreamsTurn, member_id: str) -> None:
    """Remove a member from the group."""
    group = turn.group
    for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
        turn.emit(kind, None, member_id)
    turn.emit_epoch(group.metadata_hash, group.validated_epoch, group.last_configs.get(STANDBYS))
    turn.unwatch(member_id)


def assign_delayed(turn: StreamsTurn) -> None:
    """Compute the first target assignment, for which the group has waited."""
    group, configured = turn.group, turn.unlogged.configured
    turn.is_delayed = False
    if not group.members or configured is None or group.epoch <= group.target_epoch:
        return
    standbys = int(group.last_configs.get(STANDBYS, "0"))
    targets.update(turn, group.epoch, configured, standbys)


def _updated(
    member: StreamsMember, request: StreamsGroupHeartbeatRequest, caller: Caller
) -> StreamsMember:
    changed: dict[str, Any] = {}
    if request.rack_id is not None:
        changed["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changed["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.topology is not None:
        changed["topology_epoch"] = request.topology.epoch
    if request.process_id is not None:
        changed["process_id"] = request.process_id
    if request.client_tags is not None:
        changed["tags"] = {one.key: one.value for one in request.client_tags}
    if request.user_endpoint is not None:
        changed["endpoint"] = request.user_endpoint.host, request.user_endpoint.port
    return replace(
        member, client_id=caller.client_id, client_host=caller.client_host, **changed
    )


def _topology(turn: StreamsTurn, request: StreamsGroupHeartbeatRequest) -> Topology:
    present = turn.group.topology
    if request.topology is None:
        if present is None:
            # Kafka has an unexpected error, too: the log has lost a record.
            raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
        return present
    if present is not None and present.epoch > request.topology.epoch:
        return present
    brought = Topology.of(to_stored(request.topology))
    if present is None:
        turn.emit(Kind.TOPOLOGY, brought.value)
        return brought
    if not present.is_same_as(brought):
        raise Refusal(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return present


def _note_stale(turn: StreamsTurn, member: StreamsMember) -> None:
    topology = turn.group.topology
    if topology is not None and member.topology_epoch < topology.epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology "
            f"epoch {topology.epoch}."
        )
        turn.conditions.append(Condition(StatusCode.STALE_TOPOLOGY, detail))


def _note_shutdown(turn: StreamsTurn) -> None:
    requested_by = turn.unlogged.shutdown_member
    if requested_by is not None:
        detail = (
            f"Streams group member {requested_by} encountered a fatal error and requested a "
            "shutdown for the entire application."
        )
        turn.conditions.append(Condition(StatusCode.SHUTDOWN_APPLICATION, detail))


def _refresh(
    turn: StreamsTurn,
    request: StreamsGroupHeartbeatRequest,
    topology: Topology,
    *,
    has_changed: bool,
) -> tuple[Configured, int]:
    """Find the numbers of the topology; return them, and the epoch of the group.

    The epoch grows if members, topics, the state of the topology or settings have changed.
    """
    group, configured = turn.group, turn.unlogged.configured
    metadata_hash = group.metadata_hash
    if group.topology is None or configured is None or turn.unlogged.needs_refresh:
        metadata_hash = turn.hashes.of_group(topology.required)
        has_new_topics = metadata_hash != group.metadata_hash
        has_changed |= has_new_topics
        if group.topology is None or configured is None or has_new_topics:
            configured = configure(topology, turn.topics)
            turn.set_configured(configured)
        turn.unlogged.needs_refresh = False
    validated_epoch = -1
    if configured.is_ready:
        validated_epoch = topology.epoch
        checks.check_tasks(request, configured)
    standbys = str(turn.config.standby_count)
    has_changed |= validated_epoch != group.validated_epoch
    has_changed |= group.last_configs != {STANDBYS: standbys}
    if not has_changed:
        return configured, group.epoch
    return configured, turn.emit_epoch(metadata_hash, validated_epoch, standbys)


def _owned(request: StreamsGroupHeartbeatRequest) -> Tasks | None:
    if request.active_tasks is None:
        return None
    return Tasks(
        by_subtopology(request.active_tasks),
        by_subtopology(request.standby_tasks or ()),
        by_subtopology(request.warmup_tasks or ()),
    )


def _response(
    turn: StreamsTurn,
    request: StreamsGroupHeartbeatRequest,
    owned: Tasks | None,
    moved: StreamsMember,
    has_other_tasks: bool,
) -> StreamsGroupHeartbeatResponse:
    unlogged = turn.unlogged
    response = StreamsGroupHeartbeatResponse(
        member_id=moved.member_id,
        member_epoch=moved.epoch,
        heartbeat_interval_ms=turn.config.heartbeat_interval_ms,
    )
    if has_other_tasks or request.member_epoch == JOINING_EPOCH:
        _answer_tasks(response, moved.assigned)
        unlogged.endpoints.pop(moved.member_id, None)
        if moved.endpoint is not None:
            unlogged.endpoint_epoch += 1
    elif owned is not None and owned != moved.assigned.tasks:
        # The last answer may have been lost. Kafka 4.3 does not repeat it: the member has no tasks
        # until they change.
        _answer_tasks(response, moved.assigned)
    if unlogged.endpoint_epoch != request.endpoint_information_epoch:
        response.partitions_by_user_endpoint = endpoints.listed(turn, moved)
    if not turn.is_new:
        response.endpoint_information_epoch = unlogged.endpoint_epoch
    return response


def _answer_tasks(response: StreamsGroupHeartbeatResponse, assigned: HeldTasks) -> None:
    tasks = assigned.tasks
    response.active_tasks = _answered(tasks.active)
    response.standby_tasks = _answered(tasks.standby)
    response.warmup_tasks = _answered(tasks.warmup)


def _answered(tasks: Partitions) -> list[TaskIds]:
    return [
        TaskIds(subtopology_id=name, partitions=sorted(tasks[name])) for name in hash_order(tasks)
    ]
