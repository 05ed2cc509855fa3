"""The rights to commit and read a streams group's offsets: those of members at their epochs.

A member may be behind its epoch for a moment: it may still commit offsets of the topics that its
active tasks read, if they were assigned to it at or before the epoch of its request (KIP-1251).
Any client may send requests without an epoch: fetches and commits in transactions always, other
commits while the group has no members.

Kafka's source: StreamsGroup.validateOffsetCommit, validateOffsetFetch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from odradek.broker.coordination.effects import Effect
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.modern import commits
from odradek.broker.groups.streams.group import StreamsGroup
from odradek.broker.groups.streams.member import StreamsMember
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

# Members need this version of OffsetCommit, or a later one.
_FIRST_VERSION = 9


@dataclass(slots=True)
class StreamsCommit:
    """A commit of offsets in a streams group."""

    group: StreamsGroup
    config: GroupConfig
    now_ms: int
    effects: list[Effect] = field(default_factory=list)


def commit_problem(
    group: StreamsGroup, request: OffsetCommitRequest, api_version: int
) -> ErrorCode:
    """Return the error that forbids a request to commit offsets, NONE without one."""
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if api_version < _FIRST_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    partitions = (
        (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    )
    return _epoch_problem(group, member, epoch, partitions)


def transaction_problem(group: StreamsGroup, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Return the error that forbids to commit offsets in a transaction, NONE without one."""
    partitions = (
        (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    )
    return commits.transaction_problem(
        group.members,
        request,
        lambda member: _epoch_problem(group, member, request.generation_id, partitions),
    )


def fetch_problem(group: StreamsGroup, request: OffsetFetchRequestGroup) -> ErrorCode:
    """Return the error that forbids a request to read offsets, NONE without one."""
    return commits.fetch_problem(
        group.members, request, lambda member: ErrorCode.STALE_MEMBER_EPOCH
    )


def _epoch_problem(
    group: StreamsGroup,
    member: StreamsMember,
    epoch: int,
    partitions: Iterable[tuple[str, int]],
) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    if epoch > member.epoch or group.topology is None:
        return ErrorCode.STALE_MEMBER_EPOCH
    for topic, partition in partitions:
        subtopology = group.topology.readers.get(topic)
        since = None
        for held in (member.assigned, member.revoking):
            if since is None and subtopology is not None:
                since = held.active.get(subtopology, {}).get(partition)
        if since is None or epoch < since:
            return ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.NONE
