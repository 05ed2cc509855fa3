"""Administration of share groups without members: they get other start offsets, or lose state.

An operation begins here with a record of its intention. Then the coordinator of the state carries
it out, and another record notes its end. So an operation that a crash interrupts can be repeated.

Kafka's source: GroupMetadataManager.alterShareGroupOffsets, shareGroupBuildPartitionDeleteRequest,
sharePartitionsEligibleForOffsetDeletion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from odradek.broker.groups.modern.topics import TopicView
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.partitions import (
    Begun,
    StatePartitions,
    combined,
    in_order,
)
from odradek.broker.groups.share.turn import ShareTurn
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.wire import encode_uuid

NOT_EMPTY = "The group is not empty."
_NOTHING_TO_DELETE = "There is no offset information to delete."


@dataclass(frozen=True, slots=True)
class Deleting:
    """Partitions whose state will be deleted, by topic id, and refused topics."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topics: Mapping[bytes, Sequence[int]] = field(default_factory=dict)
    # Error and message by the topic's name.
    refused: Mapping[str, tuple[ErrorCode, str]] = field(default_factory=dict)
    # Whether partitions of the group are noted at all; if not, topics are not refused, either.
    has_state: bool = False


@dataclass(frozen=True, slots=True)
class Altered:
    """The offsets at which state of partitions begins again, by topic id, and the epoch."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    starts: Mapping[bytes, Mapping[int, int]] = field(default_factory=dict)
    group_epoch: int = 0


def of(group: ShareGroup) -> StatePartitions:
    """Return the noted partitions of a group."""
    return group.partitions or StatePartitions()


def knows(partitions: StatePartitions, topic_id: bytes) -> bool:
    """Return whether partitions of a topic are noted."""
    return (
        topic_id in partitions.initializing
        or topic_id in partitions.initialized
        or topic_id in partitions.deleting
    )


def begin_deletion(turn: ShareTurn) -> Deleting:
    """Note that all state of a group will be deleted."""
    noted = turn.group.partitions
    if noted is None:
        return Deleting()
    topics = combined(noted.initialized, noted.initializing)
    again = {}
    for topic_id in noted.deleting:
        name = turn.topics.name_of(topic_id)
        if name is not None:
            every = frozenset(range(turn.topics.partition_count(name)))
            again[topic_id] = Begun(name, every, -1)
    topics = combined(topics, again)
    turn.emit_partitions(StatePartitions(deleting=frozenset(topics)))
    return Deleting(
        topics={topic_id: in_order(one.partitions) for topic_id, one in topics.items()}
    )


def begin_offset_deletion(turn: ShareTurn, names: Sequence[str]) -> Deleting:
    """Note that the state of topics will be deleted."""
    noted = turn.group.partitions
    if noted is None:
        return Deleting()
    initialized, deleting = dict(noted.initialized), set(noted.deleting)
    topics: dict[bytes, Sequence[int]] = {}
    refused: dict[str, tuple[ErrorCode, str]] = {}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for name in names:
        topic_id = turn.topics.id_of(name)
        if topic_id is None:
            refused[name] = unknown, unknown.sentence
        elif topic_id in initialized:
            topics[topic_id] = in_order(initialized.pop(topic_id).partitions)
            deleting.add(topic_id)
        elif topic_id in deleting:
            topics[topic_id] = list(range(turn.topics.partition_count(name)))
        else:
            refused[name] = unknown, _NOTHING_TO_DELETE
    turn.emit_partitions(StatePartitions(noted.initializing, initialized, frozenset(deleting)))
    return Deleting(topics=topics, refused=refused, has_state=True)


def forget_deleted(turn: ShareTurn, topic_ids: Sequence[bytes]) -> None:
    """Note that the state of topics was deleted."""
    noted = of(turn.group)
    turn.emit_partitions(
        StatePartitions(
            noted.initializing, noted.initialized, noted.deleting - frozenset(topic_ids)
        )
    )


def alter_problem(request: AlterShareGroupOffsetsRequest, topics: TopicView) -> Altered | None:
    """Return a refusal of negative partitions, with the error of Kafka, which fails later."""
    for topic in request.topics:
        topic_id = topics.id_of(topic.topic_name)
        below = next((one for one in topic.partitions if one.partition_index < 0), None)
        if topic_id is not None and below is not None:
            return Altered(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "Initialize share group parameters has invalid partitionId - "
                f"{request.group_id} {encode_uuid(topic_id)} {below.partition_index}",
            )
    return None


def alter(turn: ShareTurn, topics: Sequence[AlterShareGroupOffsetsRequestTopic]) -> Altered:
    """Note that the state of partitions will begin again, at the wanted offsets."""
    starts: dict[bytes, dict[int, int]] = {}
    # This loop has no pauses, so a topic is looked up once, however often the request names it.
    known: dict[str, tuple[bytes | None, int]] = {}
    last: dict[bytes, tuple[str, dict[int, int]]] = {}
    for topic in topics:
        name = topic.topic_name
        if name not in known:
            known[name] = turn.topics.id_of(name), turn.topics.partition_count(name)
        topic_id, count = known[name]
        if topic_id is None:
            continue
        wanted = {
            one.partition_index: one.start_offset
            for one in topic.partitions
            if one.partition_index < count
        }
        if wanted:
            starts[topic_id] = wanted
        last[topic_id] = name, wanted
    if last:
        noted = {
            topic_id: Begun(name, frozenset(wanted), turn.now_ms)
            for topic_id, (name, wanted) in last.items()
        }
        turn.emit_partitions(of(turn.group).begin(noted))
    return Altered(starts=starts, group_epoch=turn.group.epoch)
