"""Large requests to the coordinator of groups: carried out in parts, and answered as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.coordination.runtime import Answer
from odradek.broker.groups import parts
from odradek.broker.groups.coordinator import GroupCoordinator
from odradek.broker.groups.parts import commit_in_parts, leave_in_parts
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.live import client, create, live, on_uvloop
from tests.support.requests import committing

T = TypeVar("T")

AT_ONCE_MAX = 5


@pytest.fixture(autouse=True)
def small_parts() -> Iterator[None]:
    """Have a part be of few offsets and members."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "OFFSETS_AT_ONCE_MAX", AT_ONCE_MAX)
        patch.setattr(parts, "MEMBERS_AT_ONCE_MAX", AT_ONCE_MAX)
        yield


def taken(answer: Answer[T]) -> T:
    """Return an answer that waits for nothing, once it is there."""

    async def take() -> T:
        return await answer if isinstance(answer, Awaitable) else answer

    return asyncio.run(take())


def commit_of(counts: list[tuple[str, int]]) -> OffsetCommitRequest:
    """Return a commit of so many offsets in each topic, each of another partition."""
    request = committing("g", {})
    for name, count in counts:  # a topic may come twice
        offsets = {index: index for index in range(count)}
        request.topics += committing("g", {name: offsets}).topics
    return request


def answered(request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Answer each partition with a code of its own."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=one.partition_index % 7
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@given(counts=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 17)), max_size=6))
def test_a_commit_in_parts_is_answered_as_one(counts: list[tuple[str, int]]) -> None:
    request, asked = commit_of(counts), []

    def commit(part: OffsetCommitRequest) -> OffsetCommitResponse:
        asked.append(part)
        return answered(part)

    response = taken(commit_in_parts(request, commit))
    assert response == answered(request)
    sizes = [sum(len(topic.partitions) for topic in part.topics) for part in asked]
    assert all(size <= AT_ONCE_MAX for size in sizes)
    assert sum(sizes) == sum(count for _, count in counts)
    assert all(replace(part, topics=request.topics) == request for part in asked)


@given(count=st.integers(0, 17), failing=st.none() | st.integers(0, 3))
def test_members_that_leave_in_parts_are_answered_as_at_once(
    count: int, failing: int | None
) -> None:
    members = [MemberIdentity(member_id=f"m{number}") for number in range(count)]
    asked: list[list[MemberIdentity]] = []

    def leave(part: LeaveGroupRequest) -> LeaveGroupResponse:
        asked.append(part.members)
        if len(asked) - 1 == failing:
            return LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, members=[])
        gone = [MemberResponse(member_id=one.member_id, error_code=0) for one in part.members]
        return LeaveGroupResponse(error_code=0, members=gone)

    response = taken(leave_in_parts(LeaveGroupRequest(group_id="g", members=members), leave))
    assert all(len(some) <= AT_ONCE_MAX for some in asked)
    if failing is not None and failing < len(asked):
        assert (response.error_code, response.members) == (ErrorCode.NOT_COORDINATOR, [])
        assert len(asked) == failing + 1
    else:
        assert [one for some in asked for one in some] == members
        assert [one.member_id for one in response.members] == [one.member_id for one in members]


@on_uvloop
async def test_offsets_committed_in_parts_are_all_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = [("a", 13), ("b", 2), ("c", 7)]
    commit, decided = GroupCoordinator.commit, []

    def note(groups: GroupCoordinator, request: OffsetCommitRequest, requester: Any) -> Any:
        decided.append(sum(len(topic.partitions) for topic in request.topics))
        return commit(groups, request, requester)

    monkeypatch.setattr(GroupCoordinator, "commit", note)
    async with live(tmp_path) as broker, client(broker) as one:
        for name, count in counts:
            await create(broker, name, count)
        response = await one.ask(commit_of([*counts, ("gone", 9)]), version=9)
        told = {
            topic.name: {part.partition_index: part.error_code for part in topic.partitions}
            for topic in response.topics
        }
        assert decided == [5, 5, 5, 5, 2]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert told == {
            **{name: dict.fromkeys(range(count), 0) for name, count in counts},
            "gone": dict.fromkeys(range(9), unknown),
        }
        asked = [
            OffsetFetchRequestTopics(name=name, partition_indexes=list(range(count)))
            for name, count in counts
        ]
        fetching = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id="g", topics=asked)], require_stable=False
        )
        (group,) = (await one.ask(fetching, version=9)).groups
        stored = [[part.committed_offset for part in topic.partitions] for topic in group.topics]
        assert stored == [list(range(count)) for _, count in counts]
