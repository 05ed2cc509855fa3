"""What one client may make the broker keep for share groups, and what it may learn of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from odradek.broker.apis.share_fetch import _add_results
from odradek.broker.coordination.effects import Persist, Reply
from odradek.broker.security.acls import Acl, PatternType, Permission
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.outcomes import Failure
from odradek.broker.shares.sessions import (
    MISSING_PARTITIONS_MAX,
    SESSIONS_PER_CONNECTION_MAX,
    MemberKey,
    ShareSession,
    ShareSessions,
    TopicPartition,
)
from odradek.broker.shares.state_shard import StateAnswer, StateConfig, StateShard, Ticket
from odradek.broker.topics.plans import NewTopic
from odradek.config.acl import STANDARD_AUTHORIZER
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.read_share_group_state_summary import (
    PartitionData as PartitionSummary,
)
from odradek.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from odradek.protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from odradek.protocol.wire import ZERO_UUID
from tests.broker.live import client, counting_turns, live, on_uvloop, until

LIMIT = ErrorCode.SHARE_SESSION_LIMIT_REACHED


def share_fetch(member_id: str, epoch: int = 0, **options: Any) -> ShareFetchRequest:
    given = {"topics": [], "forgotten_topics_data": [], "max_wait_ms": 0, **options}
    return ShareFetchRequest(
        group_id="g",
        member_id=member_id,
        share_session_epoch=epoch,
        min_bytes=0,
        max_bytes=1,
        max_records=1,
        batch_size=1,
        **given,
    )


def made_up(start: int, count: int) -> list[TopicPartition]:
    return [TopicPartition(number.to_bytes(16), 0) for number in range(start, start + count)]


def named(partitions: list[TopicPartition]) -> list[FetchTopic]:
    return [
        FetchTopic(
            topic_id=one.topic_id,
            partitions=[FetchPartition(partition_index=one.partition, acknowledgement_batches=[])],
        )
        for one in partitions
    ]


class Sessions:
    """The sessions by themselves, and what they tell."""

    def __init__(self, partition_count: int = 0) -> None:
        self.lost: list[MemberKey] = []
        self.empty: list[str] = []
        self.sessions = ShareSessions(
            lambda: 2_000,
            lambda key, _: self.lost.append(key),
            self.empty.append,
            lambda: partition_count,
        )

    def begin(
        self, member_id: str, connection: str, partition_count: int = 1, group_id: str = "g"
    ) -> ShareSession | None:
        wanted = made_up(0, partition_count)
        return self.sessions.begin(MemberKey(group_id, member_id), wanted, connection)


@on_uvloop
async def test_all_sessions_of_a_connection_go_with_it(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        codes = [
            (await one.ask(share_fetch(f"made-up-{number}"), version=1)).error_code
            for number in range(SESSIONS_PER_CONNECTION_MAX + 2)
        ]
        assert codes == SESSIONS_PER_CONNECTION_MAX * [ErrorCode.NONE] + 2 * [LIMIT]
        async with client(broker) as other:
            assert (await other.ask(share_fetch("a"), version=1)).error_code == 0
            assert len(broker.shares.sessions) == SESSIONS_PER_CONNECTION_MAX + 1
            one.close()
            await until(lambda: len(broker.shares.sessions) == 1)
            answer = await other.ask(share_fetch("a", epoch=1), version=1)
            assert answer.error_code == ErrorCode.NONE


def test_members_that_have_gone_leave_room_on_their_connection() -> None:
    world = Sessions()
    for number in range(5 * SESSIONS_PER_CONNECTION_MAX):
        group_id = f"group-{number}"
        assert world.begin("m", "one", group_id=group_id) is not None
        world.sessions.end(MemberKey(group_id, "m"))
    assert len(world.sessions) == 0
    # What was in use for a group goes at the latest with the connection.
    assert len(world.empty) >= 4 * SESSIONS_PER_CONNECTION_MAX
    world.sessions.connection_lost("one")
    assert sorted(world.empty) == sorted(
        f"group-{number}" for number in range(5 * SESSIONS_PER_CONNECTION_MAX)
    )
    assert world.lost == []


def test_a_session_that_was_taken_over_stays_with_the_connection_that_took_it() -> None:
    world = Sessions()
    world.begin("m", "one")
    taken = world.begin("m", "other")
    world.sessions.connection_lost("one")
    assert world.sessions.get(MemberKey("g", "m")) is taken
    assert (world.lost, world.empty) == ([], [])
    world.sessions.connection_lost("other")
    assert (len(world.sessions), world.lost, world.empty) == (0, [MemberKey("g", "m")], ["g"])


def test_the_partitions_of_a_connections_sessions_are_bounded() -> None:
    world = Sessions(partition_count=20)
    key, room = MemberKey("g", "m"), MISSING_PARTITIONS_MAX + 20
    assert world.begin("m", "one", room + 1) is None
    assert world.begin("m", "one", room) is not None
    assert world.begin("n", "one", 1) is None
    assert world.begin("n", "other", room) is not None
    swapped = world.sessions.resume(key, 1, made_up(room, 2), made_up(0, 2))
    assert isinstance(swapped, ShareSession) and len(swapped.partitions) == room
    assert world.sessions.resume(key, 2, made_up(0, 2)) is LIMIT
    assert (world.sessions.get(key), world.lost) == (None, [key])


@on_uvloop
async def test_made_up_topics_that_are_forgotten_leave_nothing(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        await one.ask(share_fetch("a"), version=1)
        for epoch in range(1, 6):
            former = made_up(10 * (epoch - 1), 10)
            request = share_fetch(
                "a",
                epoch,
                topics=named(made_up(10 * epoch, 10)),
                forgotten_topics_data=[
                    ForgottenTopic(topic_id=name.topic_id, partitions=[0]) for name in former
                ],
            )
            answer = await one.ask(request, version=1)
            assert (answer.error_code, len(answer.responses)) == (ErrorCode.NONE, 10)
        session = broker.shares.sessions.get(MemberKey("g", "a"))
        assert session is not None
        assert (len(session.partitions), len(session.unknown)) == (10, 10)


@on_uvloop
async def test_a_request_for_many_partitions_state_lets_others_have_their_turn(
    tmp_path: Path,
) -> None:
    partitions = [PartitionSummary(partition=number, leader_epoch=0) for number in range(5_000)]
    topic = ReadStateSummaryData(topic_id=bytes(15) + b"x", partitions=partitions)
    request = ReadShareGroupStateSummaryRequest(group_id="g", topics=[topic])
    begun: list[int] = []
    async with live(tmp_path) as broker, client(broker) as one:
        states = broker.shares.states
        summarize = states.summarize
        async with counting_turns() as turns:
            with mock.patch.object(
                states, "summarize", lambda key: begun.append(turns()) or summarize(key)
            ):
                answer = await one.ask(request, version=0)
    assert len(answer.results[0].partitions) == len(begun) == 5_000
    assert max(begun.count(turn) for turn in set(begun)) <= 500


def test_there_is_room_for_the_state_of_so_many_share_partitions() -> None:
    shard = StateShard(StateConfig(states_max=2), lambda topic_id: 5)

    def begin(group_id: str, epoch: int = 0) -> ErrorCode:
        key = SharePartitionKey(group_id, bytes(16), 0)
        return error_of(shard.initialize(key, epoch, 0, "asked", 0))

    def error_of(effects: list[Any]) -> ErrorCode:
        for effect in effects:
            if isinstance(effect, Persist):
                assert isinstance(effect.ticket, Ticket)
                effects += shard.stored(effect.ticket, ErrorCode.NONE, 0)
        (reply,) = [effect for effect in effects if isinstance(effect, Reply)]
        assert isinstance(reply.response, StateAnswer)
        return reply.response.error

    assert [begin("a"), begin("b"), begin("c")] == [0, 0, ErrorCode.POLICY_VIOLATION]
    assert begin("a", epoch=1) is ErrorCode.NONE
    assert error_of(shard.delete(SharePartitionKey("a", bytes(16), 0), "asked")) is ErrorCode.NONE
    assert begin("c") is ErrorCode.NONE


@on_uvloop
async def test_there_is_room_for_half_a_million_in_all(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        assert broker.shares.states.config.states_max == 500_000 // 50


class CountedList(list[ShareFetchableTopicResponse]):
    """Counts how often it is gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[ShareFetchableTopicResponse]:
        self.rounds += 1
        return super().__iter__()


def test_results_are_added_without_going_through_the_answer_for_each() -> None:
    one, other, third = TopicPartition(b"a", 0), TopicPartition(b"a", 1), TopicPartition(b"b", 0)
    responses = CountedList(
        [ShareFetchableTopicResponse(topic_id=b"a", partitions=[PartitionData(partition_index=0)])]
    )
    response = ShareFetchResponse(responses=responses)
    denied = Failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    results = {one: None, other: denied, third: denied}
    _add_results(response, results | dict.fromkeys(made_up(0, 500)))
    assert responses.rounds < 5
    found = [
        (topic.topic_id, [(p.partition_index, p.acknowledge_error_code) for p in topic.partitions])
        for topic in responses[:2]
    ]
    assert found == [(b"a", [(0, 0), (1, denied.error)]), (b"b", [(0, denied.error)])]
    assert len(responses) == 502


@on_uvloop
async def test_an_answer_about_offsets_does_not_tell_the_id_of_a_hidden_topic(
    tmp_path: Path,
) -> None:
    secured = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root"}
    names = ("hidden", "not-there")
    request = AlterShareGroupOffsetsRequest(
        group_id="mine",
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
                ],
            )
            for name in names
        ],
    )
    may_read_group = Acl(
        ResourceKind.GROUP, "mine", PatternType.LITERAL, "User:ANONYMOUS", "*",
        AclOperation.READ, Permission.ALLOW,
    )  # fmt: skip
    async with live(tmp_path, secured) as broker, client(broker) as one:
        await broker.topics.create([NewTopic("hidden", 1, 1)])
        await broker.security.acls.create([may_read_group])
        answer = await one.ask(request, version=0)
    answered = {
        topic.topic_name: (topic.topic_id, [part.error_code for part in topic.partitions])
        for topic in answer.responses
    }
    assert answered == dict.fromkeys(names, (ZERO_UUID, [ErrorCode.TOPIC_AUTHORIZATION_FAILED]))
