"""OffsetCommit and OffsetFetch, and the removal of offsets: expiry, deletion of topics or groups.

A request that names a generation must come from a member of it. A request without one (-1) may
commit while the group has no members: consumers that assign partitions themselves, and the admin
client, send such requests.

Kafka's source: OffsetMetadataManager; OffsetExpirationConditionImpl (KIP-211).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import replace
from typing import Protocol

from odradek.broker.coordination.effects import Caller, Effect, Persist, Reply
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.consumer import commits as consumer_commits
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.effects import OffsetsStored
from odradek.broker.groups.offsets import GroupOffsets, TopicPartition
from odradek.broker.groups.records import CommittedOffset, OffsetRecord
from odradek.broker.groups.state import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState, Turn
from odradek.broker.groups.streams import commits as streams_commits
from odradek.broker.groups.streams.group import StreamsGroup
from odradek.broker.orders.java import string_length
from odradek.config.values import INT64_MAX
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.pacing import Pace, unpaced
from odradek.protocol.wire import ZERO_UUID

_NO_OFFSET = -1
_NO_OFFSETS = GroupOffsets()
# Requests with at most so many topics, and partitions of each, are answered without a copy.
_SHORT = 64


Group = ClassicGroup | ConsumerGroup | StreamsGroup


class OffsetsOwner(Protocol):
    """A group of any kind, as the owner of offsets."""

    @property
    def group_id(self) -> str: ...
    @property
    def offsets(self) -> GroupOffsets: ...


class CommitTurn(Protocol):
    """An operation on a group of any kind."""

    @property
    def group(self) -> OffsetsOwner: ...
    @property
    def config(self) -> GroupConfig: ...
    @property
    def now_ms(self) -> int: ...
    @property
    def effects(self) -> list[Effect]: ...


def commit(turn: Turn, request: OffsetCommitRequest, caller: Caller) -> None:
    """Store a request's offsets, or refuse the request as a whole."""
    group = turn.group
    error = commit_problem(group, request)
    if error is not ErrorCode.NONE:
        turn.reply(caller, refusal(request, error))
        return
    member = group.membership.get(request.member_id)
    if member is not None and group.is_in(GroupState.STABLE, GroupState.PREPARING_REBALANCE):
        turn.restart_session(member)
    store(turn, request, caller)


def store(turn: CommitTurn, request: OffsetCommitRequest, caller: Caller) -> None:
    """Store a request's offsets in a group of any kind; the request is checked already."""
    records: list[OffsetRecord] = []
    topics = [_commit_topic(turn, request, topic, records) for topic in request.topics]
    response = OffsetCommitResponse(topics=topics)
    if not records:
        turn.effects.append(Reply(caller.token, response))
        return
    turn.group.offsets.begin(records)
    ticket = OffsetsStored(tuple(records), caller.token, request, response)
    turn.effects.append(Persist(ticket.records, ticket))


def commit_problem(group: ClassicGroup, request: OffsetCommitRequest) -> ErrorCode:
    """Return the error that forbids a request to commit offsets, NONE without one."""
    generation = request.generation_id_or_member_epoch
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.membership.check(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member has its generation but not its assignment: it must sync first.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def refusal(
    request: OffsetCommitRequest, error: ErrorCode, pace: Pace = unpaced
) -> OffsetCommitResponse:
    """Return the refusal of all offsets of a request; handlers pass `paced`."""
    topics = [refused_topic(topic, error, pace) for topic in pace(request.topics)]
    return OffsetCommitResponse(topics=topics)


def refused_topic(
    topic: OffsetCommitRequestTopic, error: ErrorCode, pace: Pace = unpaced
) -> OffsetCommitResponseTopic:
    """Return the refusal of all offsets of a topic; handlers pass `paced`."""
    partitions = [
        OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error)
        for p in pace(topic.partitions)
    ]
    return OffsetCommitResponseTopic(
        name=topic.name, topic_id=topic.topic_id, partitions=partitions
    )


def fetch_problem(group: Group | None, request: OffsetFetchRequestGroup) -> ErrorCode:
    """Return the error that forbids a request to read offsets, NONE without one."""
    if isinstance(group, ConsumerGroup):
        return consumer_commits.fetch_problem(group, request)
    if isinstance(group, StreamsGroup):
        return streams_commits.fetch_problem(group, request)
    return ErrorCode.NONE


def fetch(
    group: Group | None,
    request: OffsetFetchRequestGroup,
    *,
    require_stable: bool = False,
    pace: Pace = unpaced,
) -> OffsetFetchResponseGroup:
    """Read the present offsets; those of a missing group, and missing offsets, read as -1.

    With `require_stable`, an offset that a transaction may replace is refused (KIP-447). Handlers
    pass `paced`, for long answers.
    """
    known = group is not None and group.state is not GroupState.DEAD
    offsets = group.offsets if group is not None and known else _NO_OFFSETS
    unstable: Collection[TopicPartition] = offsets.undecided if require_stable else ()
    if request.topics is None:
        topics = _fetch_all(offsets, unstable)
    elif _is_short(request.topics):
        topics = [_fetch_topic(offsets, topic, unstable) for topic in request.topics]
    else:
        # As in Kafka, the answer leaves out commits that come while it is being built.
        names = {topic.name for topic in request.topics}
        offsets, unstable = offsets.snapshot(names), set(unstable)
        topics = [_fetch_topic(offsets, topic, unstable, pace) for topic in pace(request.topics)]
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)


def _is_short(topics: Sequence[OffsetFetchRequestTopics]) -> bool:
    """Return whether a request is short enough to read the offsets without a copy."""
    return len(topics) <= _SHORT and all(len(one.partition_indexes) <= _SHORT for one in topics)


def expired(group: Group, config: GroupConfig, now_ms: int) -> tuple[OffsetRecord, ...]:
    """List the tombstones of the offsets that the group has not used for the retention time.

    A group keeps the offsets of topics that it reads. While it rebalances, or has members that do
    not speak the consumer protocol, it keeps all offsets.
    """
    base_ms = _retention_base(group)
    if base_ms is None:
        return ()
    return tuple(
        OffsetRecord(group.group_id, topic, partition, None)
        for topic, partitions in group.offsets.by_topic.items()
        if not group.is_subscribed_to(topic)
        for partition, committed in partitions.items()
        if (topic, partition) not in group.offsets.pending
        and (topic, partition) not in group.offsets.undecided
        and _is_expired(config, now_ms, committed, base_ms(committed))
    )


def all_offsets(group: OffsetsOwner) -> tuple[OffsetRecord, ...]:
    """List the tombstones of all offsets of a group, pending ones included."""
    return tuple(
        OffsetRecord(group.group_id, topic, partition, None)
        for topic, partition in group.offsets.partitions()
    )


def offsets_of_topic(group: OffsetsOwner, name: str, topic_id: bytes) -> tuple[OffsetRecord, ...]:
    """List the tombstones of a group's offsets in a deleted topic.

    Offsets of a topic with the same name and another id stay.
    """
    offsets = group.offsets
    return tuple(
        OffsetRecord(group.group_id, topic, partition, None)
        for topic, partition in offsets.partitions()
        if topic == name
        and (
            _is_of_topic(offsets.get(topic, partition), topic_id)
            or (topic, partition) in offsets.undecided
        )
    )


def _commit_topic(
    turn: CommitTurn,
    request: OffsetCommitRequest,
    topic: OffsetCommitRequestTopic,
    records: list[OffsetRecord],
) -> OffsetCommitResponseTopic:
    """Return the answer for a topic if its records are stored, and add them to `records`."""
    partitions = []
    for partition in topic.partitions:
        error = ErrorCode.NONE
        if string_length(partition.committed_metadata) > turn.config.offset_metadata_max_bytes:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            committed = _committed(turn, request, topic, partition)
            group_id, index = turn.group.group_id, partition.partition_index
            records.append(OffsetRecord(group_id, topic.name, index, committed))
        partitions.append(
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error
            )
        )
    return OffsetCommitResponseTopic(
        name=topic.name, topic_id=topic.topic_id, partitions=partitions
    )


def _committed(
    turn: CommitTurn,
    request: OffsetCommitRequest,
    topic: OffsetCommitRequestTopic,
    partition: OffsetCommitRequestPartition,
) -> CommittedOffset:
    expires = request.retention_time_ms != -1
    # The largest timestamp limits the expiry.
    expire_ms = min(turn.now_ms + request.retention_time_ms, INT64_MAX) if expires else -1
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=-1 if expires else partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=turn.now_ms,
        expire_timestamp_ms=expire_ms,
        # The format of an offset with an expiry has no fields for the epoch and the id.
        topic_id=ZERO_UUID if expires else topic.topic_id,
    )


def _fetch_all(
    offsets: GroupOffsets, unstable: Container[TopicPartition]
) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            name=topic,
            partitions=[
                _unstable(index) if (topic, index) in unstable else _fetched(index, committed)
                for index, committed in partitions
            ],
        )
        for topic, partitions in offsets.in_order()
    ]


def _fetch_topic(
    offsets: GroupOffsets,
    topic: OffsetFetchRequestTopics,
    unstable: Container[TopicPartition],
    pace: Pace = unpaced,
) -> OffsetFetchResponseTopics:
    partitions = []
    for index in pace(topic.partition_indexes):
        if (topic.name, index) in unstable:
            partitions.append(_unstable(index))
            continue
        committed = offsets.get(topic.name, index)
        asked_for = _is_of_topic(committed, topic.topic_id) or topic.topic_id == ZERO_UUID
        partitions.append(_fetched(index, committed if asked_for else None))
    return OffsetFetchResponseTopics(
        name=topic.name, topic_id=topic.topic_id, partitions=partitions
    )


def _fetched(index: int, committed: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=_NO_OFFSET, metadata=""
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return replace(_fetched(index, None), error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _is_of_topic(committed: CommittedOffset | None, topic_id: bytes) -> bool:
    """Return whether an offset may belong to a topic; Kafka stores the id only since 4.1."""
    return committed is None or committed.topic_id in (ZERO_UUID, topic_id)


def _retention_base(group: Group) -> Callable[[CommittedOffset], int] | None:
    """Return a function for the start of an offset's retention, None if none may expire."""
    if not isinstance(group, ClassicGroup):
        return _committed_at
    if group.protocol_type is None:
        return _committed_at
    if group.state is GroupState.EMPTY:
        since_ms = group.state_since_ms
        return _committed_at if since_ms is None else (lambda _: since_ms)
    reads_known = group.subscribed_topics is not None
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    is_stable = group.state is GroupState.STABLE
    return _committed_at if is_consumer and reads_known and is_stable else None


def _committed_at(committed: CommittedOffset) -> int:
    return committed.commit_timestamp_ms


def _is_expired(
    config: GroupConfig, now_ms: int, committed: CommittedOffset, base_ms: int
) -> bool:
    if committed.expire_timestamp_ms != -1:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - base_ms >= config.offsets_retention_ms
