"""Splits commits of very many offsets, and departures of many members, into parts.

A coordinator decides without a pause. For 40,000 offsets, which fit in a request of 1 MB, that
took 800 ms of the event loop. So a large request is carried out as several, one after the other:
each is refused or stored by itself, in a batch of its own. Kafka stores all offsets of a request
in one batch, and refuses requests with too many for one batch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from odradek.broker.coordination.runtime import Answer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from odradek.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from odradek.protocol.pacing import paced

Q = TypeVar("Q", OffsetCommitRequest, TxnOffsetCommitRequest)
R = TypeVar("R", OffsetCommitResponse, TxnOffsetCommitResponse)
T = TypeVar("T")

# The largest parts; each takes some 10 ms.
OFFSETS_AT_ONCE_MAX = 1_000
MEMBERS_AT_ONCE_MAX = 10_000


def commit_in_parts(request: Q, commit: Callable[[Q], Answer[R]]) -> Answer[R]:
    """Commit the offsets of a request, in one part if the request is short."""
    count = 0
    for topic in request.topics:
        count += len(topic.partitions)
        if count > OFFSETS_AT_ONCE_MAX:
            return _commit_in_parts(request, commit)
    return commit(request)


def leave_in_parts(
    request: LeaveGroupRequest, leave: Callable[[LeaveGroupRequest], Answer[LeaveGroupResponse]]
) -> Answer[LeaveGroupResponse]:
    """Remove the members of a request from their group, in one part if it is short."""
    if len(request.members) <= MEMBERS_AT_ONCE_MAX:
        return leave(request)
    return _leave_in_parts(request, leave)


async def _commit_in_parts(request: Q, commit: Callable[[Q], Answer[R]]) -> R:
    whole: list[Any] = []
    for part, goes_on in paced(_parts(request.topics)):
        response = await _taken(commit(replace(request, topics=part)))
        topics: list[Any] = response.topics
        if goes_on:
            whole[-1].partitions.extend(topics[0].partitions)
        whole += topics[1:] if goes_on else topics
    return type(response)(topics=whole)


def _parts(topics: Iterable[Any]) -> Iterator[tuple[list[Any], bool]]:
    """Yield the topics of each part, and whether its first continues the last part's topic."""
    part: list[Any] = []
    goes_on, room = False, OFFSETS_AT_ONCE_MAX
    for topic in topics:
        for start in range(0, max(len(topic.partitions), 1), OFFSETS_AT_ONCE_MAX):
            some = topic.partitions[start : start + OFFSETS_AT_ONCE_MAX]
            if part and len(some) > room:
                yield part, goes_on
                part, goes_on, room = [], start > 0, OFFSETS_AT_ONCE_MAX
            part.append(replace(topic, partitions=some))
            room -= len(some)
    yield part, goes_on


async def _leave_in_parts(
    request: LeaveGroupRequest, leave: Callable[[LeaveGroupRequest], Answer[LeaveGroupResponse]]
) -> LeaveGroupResponse:
    members: list[MemberResponse] = []
    for start in paced(range(0, len(request.members), MEMBERS_AT_ONCE_MAX)):
        some = request.members[start : start + MEMBERS_AT_ONCE_MAX]
        response = await _taken(leave(replace(request, members=some)))
        if response.error_code != ErrorCode.NONE:
            return response
        members += response.members
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=members)


async def _taken(answer: Answer[T]) -> T:
    return await answer if isinstance(answer, Awaitable) else answer
