"""The rights of members to commit in transactions and to read offsets, in groups of new kinds.

Any client may do both without an epoch. Kafka's source: validateOffsetCommit and
validateOffsetFetch of ConsumerGroup and StreamsGroup, which are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

_NO_GENERATION = -1


class HasEpoch(Protocol):
    """A member of a group."""

    @property
    def epoch(self) -> int:
        """The epoch that it has reached."""


M = TypeVar("M", bound=HasEpoch)


def transaction_problem(
    members: Mapping[str, M],
    request: TxnOffsetCommitRequest,
    epoch_problem: Callable[[M], ErrorCode],
) -> ErrorCode:
    """Return the error that forbids to commit offsets in a transaction, NONE without one.

    `epoch_problem` judges the epoch of the request for its member.
    """
    epoch = request.generation_id
    if epoch < 0 and not members:
        return ErrorCode.NONE
    is_anonymous = not request.member_id and request.group_instance_id is None
    if epoch == _NO_GENERATION and is_anonymous:
        return ErrorCode.NONE
    member = members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = epoch_problem(member)
    # TxnOffsetCommit has no other code for a stale epoch.
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error


def fetch_problem(
    members: Mapping[str, M],
    request: OffsetFetchRequestGroup,
    stale: Callable[[M], ErrorCode],
) -> ErrorCode:
    """Return the error that forbids a request to read offsets, NONE without one.

    `stale` returns the error for a member at another epoch.
    """
    if request.member_id is None and request.member_epoch < 0:
        return ErrorCode.NONE
    member = members.get(request.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if request.member_epoch == member.epoch else stale(member)
