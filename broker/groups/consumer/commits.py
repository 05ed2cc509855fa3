"""The rights to commit and read a consumer group's offsets: those of members at their epochs.

A member may be behind its epoch for a moment: it may still commit offsets of partitions that were
assigned to it at or before the epoch of its request (KIP-1251). Any client may send requests
without an epoch: fetches and commits in transactions always, other commits while the group has no
members.

Kafka's source: ConsumerGroup.validateOffsetCommit, validateOffsetFetch.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.member import Member
from odradek.broker.groups.modern import commits
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

# Members of the consumer protocol need this version of OffsetCommit, or a later one.
_CONSUMER_VERSION = 9
Partition = tuple[str, bytes, int]


def commit_problem(
    group: ConsumerGroup, request: OffsetCommitRequest, api_version: int
) -> ErrorCode:
    """Return the error that forbids a request to commit offsets, NONE without one."""
    epoch = request.generation_id_or_member_epoch
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and api_version < _CONSUMER_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    partitions = (
        (topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    return _epoch_problem(member, epoch, partitions)


def transaction_problem(
    group: ConsumerGroup, request: TxnOffsetCommitRequest, topic_ids: Iterable[bytes]
) -> ErrorCode:
    """Return the error that forbids to commit offsets in a transaction, NONE without one."""
    partitions = (
        (topic_id, partition.partition_index)
        for topic_id, topic in zip(topic_ids, request.topics, strict=True)
        for partition in topic.partitions
    )
    return commits.transaction_problem(
        group.members,
        request,
        lambda member: _epoch_problem(member, request.generation_id, partitions),
    )


def fetch_problem(group: ConsumerGroup, request: OffsetFetchRequestGroup) -> ErrorCode:
    """Return the error that forbids a request to read offsets, NONE without one."""
    return commits.fetch_problem(group.members, request, _stale)


def _epoch_problem(
    member: Member, epoch: int, partitions: Iterable[tuple[bytes, int]]
) -> ErrorCode:
    if epoch == member.epoch:
        return ErrorCode.NONE
    if epoch > member.epoch:
        return _stale(member)
    for topic_id, partition in partitions:
        since = member.assigned.get(topic_id, {}).get(partition)
        if since is None:
            since = member.revoking.get(topic_id, {}).get(partition)
        if since is None or epoch < since:
            return _stale(member)
    return ErrorCode.NONE


def _stale(member: Member) -> ErrorCode:
    is_classic = member.classic is not None
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
