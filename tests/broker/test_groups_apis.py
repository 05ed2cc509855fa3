"""The APIs of groups, version by version: every answer must fit its version's layout."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

import pytest

from odradek.broker.api_table import BY_KEY
from odradek.broker.apis import load
from odradek.broker.errors import CloseConnection
from odradek.broker.loop import repeats
from odradek.broker.security.authorized_operations import ALL_OF_GROUP
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.schema import info_of
from tests.broker.group_fakes import TOPIC_ID, Bench, settle
from tests.broker.group_world import code
from tests.support.requests import committing

UNKNOWN_ID = bytes([9] * 16)


async def ask(bench: Bench, request: Any, version: int, *, after_s: float = 0) -> Any:
    """Send a request through its handler as the wire would; return the answer so decoded."""
    request = decode(type(request), version, encode(request, version))
    api = BY_KEY[info_of(type(request)).key]
    answer = load(api).handle(bench.services(), bench.context(version), request)
    if inspect.iscoroutine(answer):
        answer = asyncio.ensure_future(answer)
    await bench.loop.advance(after_s)
    await settle()
    response = await answer if isinstance(answer, Awaitable) else answer
    return decode(type(response), version, encode(response, version))


def versions(request: type) -> pytest.MarkDecorator:
    """Run a test for each version of a request."""
    return pytest.mark.parametrize("version", list(info_of(request).versions))


@pytest.fixture
def few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let names be repeated for fewer bytes, so that smaller requests are over the bound."""
    monkeypatch.setattr(repeats, "REPEATED_BYTES_MAX", repeats.REPEATED_BYTES_MAX // 20)


def run(body: Any) -> None:
    """Run a test's body with a loaded coordinator."""

    async def loaded() -> None:
        bench = Bench()
        await bench.groups.load()
        await body(bench)

    asyncio.run(loaded())


def join_request(version: int, member_id: str = "", group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000 if version else -1,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"meta")],
    )


async def join(bench: Bench, version: int = 9) -> Any:
    answer = await ask(bench, join_request(version), version, after_s=4)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        again = join_request(version, answer.member_id)
        answer = await ask(bench, again, version, after_s=4)
    return answer


async def stable(bench: Bench) -> str:
    member_id: str = (await join(bench)).member_id
    own = SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id=member_id, assignments=[own]
    )
    assert (await ask(bench, request, 4)).assignment == b"mine"
    return member_id


@versions(JoinGroupRequest)
def test_join_group(version: int) -> None:
    async def body(bench: Bench) -> None:
        answer = await join(bench, version)
        assert answer.error_code == ErrorCode.NONE and answer.generation_id == 1
        assert answer.leader == answer.member_id == answer.members[0].member_id
        assert answer.members[0].metadata == b"meta"
        refused = await ask(bench, join_request(version, "stranger"), version)
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert refused.protocol_name == (None if version >= 7 else "")
        empty = await ask(bench, join_request(version, group=""), version)
        assert empty.error_code == ErrorCode.INVALID_GROUP_ID

    run(body)


@versions(SyncGroupRequest)
def test_sync_group(version: int) -> None:
    async def body(bench: Bench) -> None:
        member_id = (await join(bench)).member_id
        own = SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")
        request = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member_id,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
            assignments=[own],
        )
        answer = await ask(bench, request, version)
        assert answer.error_code == ErrorCode.NONE and answer.assignment == b"mine"

    run(body)


def test_sync_group_must_name_the_protocol_from_version_5_on() -> None:
    async def body(bench: Bench) -> None:
        member_id = await stable(bench)
        request = SyncGroupRequest(
            group_id="g", generation_id=1, member_id=member_id, assignments=[]
        )
        answer = await ask(bench, request, 5)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    run(body)


@versions(HeartbeatRequest)
def test_heartbeat(version: int) -> None:
    async def body(bench: Bench) -> None:
        member_id = await stable(bench)
        for generation, error in ((1, ErrorCode.NONE), (2, ErrorCode.ILLEGAL_GENERATION)):
            request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
            assert (await ask(bench, request, version)).error_code == error

    run(body)


@versions(LeaveGroupRequest)
def test_leave_group(version: int) -> None:
    async def body(bench: Bench) -> None:
        member_id = await stable(bench)
        for name, error in ((member_id, ErrorCode.NONE), ("x", ErrorCode.UNKNOWN_MEMBER_ID)):
            request = LeaveGroupRequest(
                group_id="g",
                member_id=name if version < 3 else "",
                members=[MemberIdentity(member_id=name)] if version >= 3 else [],
            )
            answer = await ask(bench, request, version)
            if version < 3:
                assert answer.error_code == error
            else:
                assert answer.error_code == ErrorCode.NONE
                assert [member.error_code for member in answer.members] == [error]

    run(body)


def commit_request(topics: dict[str | bytes, list[int]]) -> OffsetCommitRequest:
    offsets = {name: {at: 10 + at for at in indexes} for name, indexes in topics.items()}
    return committing("g", offsets, metadata="m")


@versions(OffsetCommitRequest)
def test_offset_commit(version: int) -> None:
    async def body(bench: Bench) -> None:
        by_id = version >= 10
        there: str | bytes = TOPIC_ID if by_id else "t"
        absent: str | bytes = UNKNOWN_ID if by_id else "absent"
        request = commit_request({there: [0, 1, 4, -1], absent: [0]})
        answer = await ask(bench, request, version)
        errors = {
            (topic.topic_id if by_id else topic.name, p.partition_index): code(p.error_code)
            for topic in answer.topics
            for p in topic.partitions
        }
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert errors == {
            (there, 0): ErrorCode.NONE,
            (there, 1): ErrorCode.NONE,
            (there, 4): unknown,
            (there, -1): unknown,
            (absent, 0): ErrorCode.UNKNOWN_TOPIC_ID if by_id else unknown,
        }
        assert len(answer.topics) == 2
        group = bench.groups.describe("g", api_version=6)
        assert group.error_code == ErrorCode.NONE

    run(body)


def test_offset_commit_of_nothing_that_exists_makes_no_group() -> None:
    async def body(bench: Bench) -> None:
        await ask(bench, commit_request({"absent": [0]}), 9)
        assert bench.groups.list_groups((), ()) == (ErrorCode.NONE, [])

    run(body)


def test_offset_commit_names_a_topic_that_is_not_there_even_without_partitions() -> None:
    async def body(bench: Bench) -> None:
        answer = await ask(bench, commit_request({"t": [], "absent": []}), 9)
        assert [(topic.name, topic.partitions) for topic in answer.topics] == [("absent", [])]

    run(body)


def test_offset_commit_to_a_slow_log_and_an_unknown_topic_is_one_answer() -> None:
    async def body(bench: Bench) -> None:
        bench.log.is_held = True
        asyncio.get_running_loop().call_later(0.01, bench.log.end)
        answer = await ask(bench, commit_request({"t": [0, 9], "absent": [0]}), 9)
        assert [[p.error_code for p in topic.partitions] for topic in answer.topics] == [
            [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE],
            [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        ]

    run(body)


def transactional_request(version: int, topics: dict[str, list[int]]) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="writer",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=7,
                        committed_leader_epoch=3 if version >= 2 else -1,
                        committed_metadata=None,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in topics.items()
        ],
    )


@versions(TxnOffsetCommitRequest)
def test_txn_offset_commit_to_a_slow_log_and_an_unknown_topic_is_one_answer(version: int) -> None:
    async def body(bench: Bench) -> None:
        bench.log.is_held = True
        asyncio.get_running_loop().call_later(0.01, bench.log.end)
        asked = {"t": [0, 9], "absent": [0], "nothing": []}
        answer = await ask(bench, transactional_request(version, asked), version)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert {t.name: [p.error_code for p in t.partitions] for t in answer.topics} == {
            "t": [unknown, ErrorCode.NONE], "absent": [unknown], "nothing": [],
        }  # fmt: skip

    run(body)


@versions(TxnOffsetCommitRequest)
def test_txn_offset_commit_while_the_groups_are_loaded(version: int) -> None:
    async def body() -> None:
        answer = await ask(Bench(), transactional_request(version, {"t": [0]}), version)
        (topic,) = answer.topics
        assert topic.partitions[0].error_code == (
            ErrorCode.COORDINATOR_NOT_AVAILABLE
            if version < 2
            else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )

    asyncio.run(body())


def test_txn_offset_commit_of_nothing_that_exists_makes_no_group() -> None:
    async def body(bench: Bench) -> None:
        answer = await ask(bench, transactional_request(5, {"absent": [0], "t": []}), 5)
        assert [topic.name for topic in answer.topics] == ["absent"]
        assert bench.groups.list_groups((), ()) == (ErrorCode.NONE, [])

    run(body)


def fetch_request(version: int, wanted: list[int] | None) -> OffsetFetchRequest:
    by_id = version >= 10
    if version < 8:
        old = (
            None
            if wanted is None
            else [OffsetFetchRequestTopic(name="t", partition_indexes=wanted)]
        )
        return OffsetFetchRequest(group_id="g", topics=old, groups=[])
    topics = None
    if wanted is not None:
        topics = [
            OffsetFetchRequestTopics(
                name="" if by_id else "t",
                topic_id=TOPIC_ID if by_id else bytes(16),
                partition_indexes=wanted,
            )
        ]
    groups = [
        OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in ("g", "other")
    ]
    return OffsetFetchRequest(group_id="", topics=[], groups=groups)


def fetched(answer: Any, version: int) -> list[dict[int, int]]:
    groups = [answer] if version < 8 else answer.groups
    assert all(group.error_code == ErrorCode.NONE for group in groups)
    for group in groups:
        for topic in group.topics:
            assert topic.topic_id == TOPIC_ID if version >= 10 else topic.name == "t"
    return [
        {p.partition_index: p.committed_offset for t in group.topics for p in t.partitions}
        for group in groups
    ]


@versions(OffsetFetchRequest)
def test_offset_fetch(version: int) -> None:
    async def body(bench: Bench) -> None:
        await ask(bench, commit_request({"t": [0, 1]}), 9)
        some = fetched(await ask(bench, fetch_request(version, [1, 2]), version), version)
        assert some[0] == {1: 11, 2: -1}
        if version >= 2:
            everything = await ask(bench, fetch_request(version, None), version)
            assert fetched(everything, version)[0] == {0: 10, 1: 11}
        if version >= 8:
            assert some[1] == {1: -1, 2: -1}
        if version >= 7:
            stable = fetch_request(version, [1])
            stable.require_stable = True
            bench.log.is_held = True
            bench.groups.commit(_again(), bench.context(9))
            asyncio.get_running_loop().call_later(0.01, bench.log.end)
            answer = await ask(bench, stable, version)
            assert fetched(answer, version)[0] == {1: 99}

    run(body)


class _Denier:
    """An authorizer that nobody may pass."""

    @staticmethod
    def has_allowed(*_: object) -> bool:
        return False

    @staticmethod
    def may(*_: object, **__: object) -> bool:
        return False


def test_offset_fetch_does_not_wait_for_commits_of_a_group_that_is_denied() -> None:
    async def body(bench: Bench) -> None:
        await ask(bench, commit_request({"t": [0, 1]}), 9)
        bench.log.is_held = True
        pending = bench.groups.commit(_again(), bench.context(9))
        request = fetch_request(9, [1])
        request.require_stable = True
        context = bench.context(9)
        context.authorizer = _Denier()
        handle = load(BY_KEY[info_of(OffsetFetchRequest).key]).handle
        answer = handle(bench.services(), context, request)
        assert not isinstance(answer, Awaitable), "it waits for what the client may not know of"
        denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert {(group.error_code, len(group.topics)) for group in answer.groups} == {(denied, 0)}
        bench.log.end()
        await pending

    run(body)


def test_offsets_that_are_asked_for_again_are_answered_again_within_bounds() -> None:
    async def body(bench: Bench) -> None:
        noted = commit_request({"t": [0, 1]})
        noted.topics[0].partitions[0].committed_metadata = "x" * 4_000
        await ask(bench, noted, 8)
        asked = fetch_request(9, None).groups[:1]
        request = OffsetFetchRequest(groups=3 * asked)
        assert fetched(await ask(bench, request, 9), 9) == 3 * [{0: 10, 1: 11}]
        request.groups = 10_000 * asked
        with pytest.raises(CloseConnection):
            await ask(bench, request, 9)
        for version, groups in ((9, 3_000), (9, 1), (7, 1)):
            request = fetch_request(version, (10_000 // groups) * [1])
            request.groups = groups * request.groups[:1]
            await ask(bench, request, version)
            request = fetch_request(version, (10_000 // groups) * [0])
            request.groups = groups * request.groups[:1]
            with pytest.raises(CloseConnection):
                await ask(bench, request, version)

    run(body)


def _again() -> OffsetCommitRequest:
    request = commit_request({"t": [1]})
    request.topics[0].topic_id = TOPIC_ID
    request.topics[0].partitions[0].committed_offset = 99
    return request


@versions(OffsetFetchRequest)
def test_offset_fetch_while_the_group_is_loaded(version: int) -> None:
    async def body() -> None:
        bench = Bench()
        answer = await ask(bench, fetch_request(version, [0]), version)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if version >= 8:
            assert {group.error_code for group in answer.groups} == {loading}
        elif version >= 2:
            assert answer.error_code == loading and answer.topics == []
        else:
            assert answer.topics[0].partitions[0].error_code == loading
            assert answer.topics[0].partitions[0].committed_offset == -1

    asyncio.run(body())


def test_offset_fetch_by_id_names_unknown_topics_and_leaves_deleted_ones_out() -> None:
    async def body(bench: Bench) -> None:
        bench.topics.by_name["gone"] = (UNKNOWN_ID, 1)
        await ask(bench, commit_request({"t": [0], "gone": [0]}), 9)
        del bench.topics.by_name["gone"]
        request = fetch_request(10, [0])
        assert request.groups[0].topics is not None
        request.groups[0].topics.append(
            OffsetFetchRequestTopics(name="", topic_id=UNKNOWN_ID, partition_indexes=[0])
        )
        answer = await ask(bench, request, 10)
        errors = {t.topic_id: t.partitions[0].error_code for t in answer.groups[0].topics}
        assert errors == {TOPIC_ID: ErrorCode.NONE, UNKNOWN_ID: ErrorCode.UNKNOWN_TOPIC_ID}
        everything = await ask(bench, fetch_request(10, None), 10)
        assert [t.topic_id for t in everything.groups[0].topics] == [TOPIC_ID]

    run(body)


@versions(FindCoordinatorRequest)
@pytest.mark.usefixtures("few_repeats")
def test_find_coordinator(version: int) -> None:
    async def body(bench: Bench) -> None:
        outcomes = {
            0: (ErrorCode.NONE, 5, "broker.example", 9092),
            1: (ErrorCode.NONE, 5, "broker.example", 9092),
            2: (ErrorCode.INVALID_REQUEST, -1, "", -1),
            9: (ErrorCode.INVALID_REQUEST, -1, "", -1),
        }
        for key_type, expected in outcomes.items() if version else [(0, outcomes[0])]:
            batch = version >= 4
            request = FindCoordinatorRequest(
                key="" if batch else "k",
                key_type=key_type,
                coordinator_keys=["k", "l"] if batch else [],
            )
            answer = await ask(bench, request, version)
            for found in answer.coordinators if batch else [answer]:
                assert (found.error_code, found.node_id, found.host, found.port) == expected
            if batch:
                assert [found.key for found in answer.coordinators] == ["k", "l"]
                request.coordinator_keys = ["k", "l", "k"]
                first, other, again = (await ask(bench, request, version)).coordinators
                assert (first.key, other.key, again) == ("k", "l", first)

        if version >= 4:
            too_many = FindCoordinatorRequest(coordinator_keys=50_000 * [""])
            with pytest.raises(CloseConnection):
                await ask(bench, too_many, version)

    run(body)


@versions(DescribeGroupsRequest)
@pytest.mark.usefixtures("few_repeats")
def test_describe_groups(version: int) -> None:
    async def body(bench: Bench) -> None:
        member_id = await stable(bench)
        request = DescribeGroupsRequest(
            groups=["g", "absent"], include_authorized_operations=version >= 3
        )
        there, absent = (await ask(bench, request, version)).groups
        assert (there.group_state, there.protocol_type) == ("Stable", "consumer")
        assert there.protocol_data == "range"
        (member,) = there.members
        assert (member.member_id, member.client_host) == (member_id, "/127.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (b"meta", b"mine")
        if version >= 3:
            assert there.authorized_operations == ALL_OF_GROUP
        assert absent.group_state == "Dead" and absent.members == []
        unknown = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        assert absent.error_code == unknown
        request.groups = ["g", "absent", "g"]
        assert (await ask(bench, request, version)).groups == [there, absent, there]
        with pytest.raises(CloseConnection):
            await ask(bench, DescribeGroupsRequest(groups=10_000 * ["g"]), version)

    run(body)


@versions(ListGroupsRequest)
def test_list_groups(version: int) -> None:
    async def body(bench: Bench) -> None:
        await stable(bench)
        other = commit_request({"t": [0]})
        other.group_id = "simple"
        await ask(bench, other, 9)

        async def listed(states: list[str], types: list[str]) -> set[str]:
            request = ListGroupsRequest(states_filter=states, types_filter=types)
            return {group.group_id for group in (await ask(bench, request, version)).groups}

        assert await listed([], []) == {"g", "simple"}
        if version >= 4:
            assert await listed(["stable", " DEAD"], []) == {"g"}
            assert await listed(["Empty"], []) == {"simple"}
            assert await listed(["nonsense"], []) == set()
        if version >= 5:
            assert await listed([], ["Classic"]) == {"g", "simple"}
            assert await listed([], ["consumer"]) == set()

    run(body)


@versions(DeleteGroupsRequest)
def test_delete_groups(version: int) -> None:
    async def body(bench: Bench) -> None:
        await stable(bench)
        other = commit_request({"t": [0]})
        other.group_id = "simple"
        await ask(bench, other, 9)
        names = ["g", "simple", "absent", "simple"]
        answer = await ask(bench, DeleteGroupsRequest(groups_names=names), version)
        assert {result.group_id: result.error_code for result in answer.results} == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "simple": ErrorCode.NONE,
            "absent": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert len(answer.results) == 3

    run(body)


def test_offset_delete() -> None:
    async def body(bench: Bench) -> None:
        await ask(bench, commit_request({"t": [0, 1]}), 9)
        request = OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in indexes],
                )
                for name, indexes in {"t": [0, 9, -1], "absent": [0]}.items()
            ],
        )
        answer = await ask(bench, request, 0)
        assert answer.error_code == ErrorCode.NONE
        assert {
            (topic.name, p.partition_index): p.error_code
            for topic in answer.topics
            for p in topic.partitions
        } == {
            ("t", 0): ErrorCode.NONE,
            ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("absent", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert len(answer.topics) == 2
        request.group_id = "absent"
        refused = await ask(bench, request, 0)
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND and refused.topics == []

    run(body)
