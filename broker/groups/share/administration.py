"""What administrators do to share groups without members: move where they start, delete state.

Each is begun here, by noting what is to happen; then the coordinator of the state does it, and
that is noted here, too. So what a crash interrupts can be asked for again.

Kafka's source: GroupMetadataManager.alterShareGroupOffsets, shareGroupBuildPartitionDeleteRequest,
sharePartitionsEligibleForOffsetDeletion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.groups.modern.topics import TopicView
from broker.groups.share.group import ShareGroup
from broker.groups.share.partitions import (
    Begun,
    StatePartitions,
    combined,
    in_order,
)
from broker.groups.share.turn import ShareTurn
from protocol.errors import ErrorCode
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from protocol.wire import encode_uuid

NOT_EMPTY = "The group is not empty."
_NOTHING_TO_DELETE = "There is no offset information to delete."


@dataclass(frozen=True, slots=True)
class Deleting:
    """Partitions whose state is to go, by topic id, and topics that have none."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topics: Mapping[bytes, Sequence[int]] = field(default_factory=dict)
    # Error and message by the topic's name.
    refused: Mapping[str, tuple[ErrorCode, str]] = field(default_factory=dict)
    # Without anything noted of the group topics are not refused, either.
    has_state: bool = False


@dataclass(frozen=True, slots=True)
class Altered:
    """Where the state of partitions is to be begun again, by topic id, and with which epoch."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    starts: Mapping[bytes, Mapping[int, int]] = field(default_factory=dict)
    group_epoch: int = 0


def of(group: ShareGroup) -> StatePartitions:
    """Return what is noted of a group's partitions."""
    return group.partitions or StatePartitions()


def knows(partitions: StatePartitions, topic_id: bytes) -> bool:
    """Return whether anything is noted of a topic."""
    return (
        topic_id in partitions.initializing
        or topic_id in partitions.initialized
        or topic_id in partitions.deleting
    )


def begin_deletion(turn: ShareTurn) -> Deleting:
    """Note that all state of a group is to go."""
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
    """Note that the state of topics is to go."""
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
    """Note that the state of topics is gone."""
    noted = of(turn.group)
    turn.emit_partitions(
        StatePartitions(
            noted.initializing, noted.initialized, noted.deleting - frozenset(topic_ids)
        )
    )


def alter_problem(request: AlterShareGroupOffsetsRequest, topics: TopicView) -> Altered | None:
    """Refuse partitions below zero, in Kafka's words; it fails once it has noted them."""
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
    """Note that the state of partitions is to begin again, where that is wanted."""
    starts: dict[bytes, dict[int, int]] = {}
    # All in one piece: a topic is looked up once, however often the request names it.
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
