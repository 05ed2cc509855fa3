"""Consumer groups by themselves: timeouts, static members, refusals, offsets, a refusing log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.groups.config import ConsumerSettings
from odradek.broker.groups.consumer.member import MemberState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.storage.errors import DiskFailure
from tests.broker.consumer_world import AT_ONCE, GROUP, ConsumerWorld
from tests.broker.group_fakes import TOPIC_ID, Bench
from tests.broker.group_world import subscription

SESSION_MS = 45_000


def join(
    world: ConsumerWorld, member_id: str, *, topics: tuple[str, ...] = ("t",), **fields: Any
) -> ConsumerGroupHeartbeatResponse:
    answer = world.heartbeat(
        member_id,
        0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=list(topics),
        topic_partitions=[],
        **fields,
    )
    assert answer.error_code == ErrorCode.NONE
    return answer


def join_classic(world: ConsumerWorld, member_id: str, protocols: dict[str, bytes]) -> ErrorCode:
    """Have a member join by the classic protocol; return the error of the answer."""
    world.fresh_id = member_id
    request = JoinGroupRequest(
        group_id=GROUP, member_id=member_id, session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000, protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols.items()],
    )  # fmt: skip
    return ErrorCode(world.ask("join", request, 9).error_code)


def owned(*partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=TOPIC_ID, partitions=list(partitions))]


def assigned(answer: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    if answer.assignment is None:
        return None
    return sorted(p for one in answer.assignment.topic_partitions for p in one.partitions)


def test_partitions_are_given_up_before_another_has_them() -> None:
    world = ConsumerWorld()
    assert assigned(join(world, "a")) == [0, 1, 2, 3]
    assert assigned(join(world, "b")) == []
    told = world.heartbeat("a", 2, topic_partitions=owned(0, 1, 2, 3))
    assert told.member_epoch == 2 and assigned(told) == [0, 1]
    assert assigned(world.heartbeat("b", 3, topic_partitions=[])) is None
    assert world.heartbeat("a", 2, topic_partitions=owned(0, 1)).member_epoch == 3
    assert assigned(world.heartbeat("b", 3, topic_partitions=[])) == [2, 3]


def test_a_group_stays_a_consumer_group_when_its_classic_members_have_no_common_metadata() -> None:
    world = ConsumerWorld()
    join(world, "c")
    good, bad = subscription("t"), b"?"
    assert join_classic(world, "a", {"range": good, "sticky": bad}) is ErrorCode.NONE
    assert join_classic(world, "b", {"sticky": good, "range": bad}) is ErrorCode.NONE
    left = world.heartbeat("c", -1)
    assert left.error_code == ErrorCode.NONE
    assert set(world.group().members) == {"a", "b"}


def test_a_group_without_members_stays_as_it_is_when_it_refuses_an_unknown_one() -> None:
    world = ConsumerWorld()
    join(world, "a")
    world.heartbeat("a", -1)
    written = len(world.log)
    error = join_classic(world, "b", {"range": subscription("t")})
    assert error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.group().epoch == 3 and len(world.log) == written


def test_a_silent_member_is_fenced_when_its_session_ends() -> None:
    world = ConsumerWorld()
    join(world, "a")
    world.pass_time(SESSION_MS - 1)
    assert "a" in world.group().members
    world.pass_time(1)
    assert not world.group().members
    answer = world.heartbeat("a", 2)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.error_message == "Member a is not a member of group g."


def test_a_member_that_does_not_give_up_its_partitions_is_fenced() -> None:
    world = ConsumerWorld()
    join(world, "a")
    join(world, "b")
    world.heartbeat("a", 2)
    assert world.group().members["a"].state is MemberState.UNREVOKED_PARTITIONS
    for _ in range(10):
        world.pass_time(1_000)
        world.heartbeat("b", 3)
    assert "a" not in world.group().members


def test_a_static_member_comes_back_to_what_it_had() -> None:
    world = ConsumerWorld()
    join(world, "a", instance_id="i")
    join(world, "b")
    epoch = world.group().epoch
    refused = world.heartbeat(
        "c", 0, instance_id="i", rebalance_timeout_ms=1, subscribed_topic_names=["t"],
        topic_partitions=[],
    )  # fmt: skip
    assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert world.heartbeat("a", -2, instance_id="i").member_epoch == -2
    answer = join(world, "c", instance_id="i")
    assert assigned(answer) == [0, 1] and world.group().epoch == epoch
    fenced = world.heartbeat("a", 3, instance_id="i")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("epoch", "partitions", "error"),
    [
        (3, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, None, ErrorCode.FENCED_MEMBER_EPOCH),
        # The epoch before will do for who owns nothing else; a joining one has been at none.
        (2, owned(0), ErrorCode.NONE),
    ],
)
def test_a_member_at_another_epoch_is_fenced(
    epoch: int, partitions: list[TopicPartitions] | None, error: ErrorCode
) -> None:
    world = ConsumerWorld()
    join(world, "a")
    assert world.heartbeat("a", epoch, topic_partitions=partitions).error_code == error


def test_assignments_wait_for_their_interval() -> None:
    world = ConsumerWorld()
    world.reconfigure(consumer_defaults=ConsumerSettings(assignment_interval_ms=1_000))
    assert join(world, "a").member_epoch == 2
    assert join(world, "b").member_epoch == 2  # the group is at 3 already
    world.pass_time(1_000)
    assert world.heartbeat("b", 2).member_epoch == 3


def test_an_expression_is_matched_soon_and_again_when_topics_come() -> None:
    world = ConsumerWorld()
    join(world, "a", topics=(), subscribed_topic_regex="t.*")
    world.pass_time(10)
    assert assigned(world.heartbeat("a", 1)) == [0, 1, 2, 3]
    world.grow("tt", 1)
    world.pass_time(11_000)
    world.heartbeat("a", 2)
    world.pass_time(10)
    assert assigned(world.heartbeat("a", 2)) == [0, 0, 1, 2, 3]


def test_an_expression_matches_only_what_its_member_may_describe() -> None:
    world = ConsumerWorld()
    world.grow("tt", 1)
    world.describable = lambda names: {name for name in names if name != "t"}
    join(world, "a", topics=(), subscribed_topic_regex="t.*")
    world.describable = None  # that of the heartbeat that had them matched counts
    world.pass_time(10)
    assert assigned(world.heartbeat("a", 1)) == [0]
    assert world.group().resolved["t.*"].topics == {"tt"}


def test_new_partitions_are_assigned_at_the_next_heartbeat() -> None:
    world = ConsumerWorld()
    join(world, "a")
    world.grow("t", 6)
    assert assigned(world.heartbeat("a", 2)) == [0, 1, 2, 3, 4, 5]


def commit(world: ConsumerWorld, member_id: str, epoch: int, partition: int) -> int:
    one = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=7, committed_metadata=None
    )
    topics = [OffsetCommitRequestTopic(name="t", topic_id=TOPIC_ID, partitions=[one])]
    request = OffsetCommitRequest(
        group_id=GROUP,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        topics=topics,
    )
    answer = world.ask("offsets.commit", request, 9)
    error: int = answer.topics[0].partitions[0].error_code
    return error


def test_a_member_commits_what_it_was_given_at_an_epoch_that_it_knows() -> None:
    world = ConsumerWorld()
    join(world, "a")
    join(world, "b")
    world.heartbeat("a", 2, topic_partitions=owned(0, 1, 2, 3))
    world.heartbeat("a", 2, topic_partitions=owned(0, 1))
    assert commit(world, "a", 3, 0) == ErrorCode.NONE
    assert commit(world, "a", 2, 0) == ErrorCode.NONE  # it has had it since then
    assert commit(world, "a", 2, 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "a", 4, 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, "x", 3, 0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_keeps_the_offsets_of_what_it_reads_and_goes_when_it_has_none() -> None:
    world = ConsumerWorld()
    join(world, "a")
    assert commit(world, "a", 2, 0) == ErrorCode.NONE
    later_ms = world.now_ms + world.config.offsets_retention_ms
    world.perform(world.shard.offsets.expire(later_ms))
    assert world.group().offsets.get("t", 0) is not None
    world.heartbeat("a", -1)
    world.perform(world.shard.offsets.expire(later_ms))
    assert world.shard.group(GROUP) is None
    world.restart()
    assert world.shard.group(GROUP) is None


def test_a_log_that_refuses_has_the_partition_loaded_again() -> None:
    async def body() -> None:
        bench = Bench()
        await bench.groups.load()
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="a",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        bench.log.is_held = True
        answer: Any = bench.groups.consumer_heartbeat(request, bench.context(1))
        bench.log.end(error=DiskFailure("append to a log", OSError("full")))
        bench.log.is_held = False
        assert (await answer).error_code == ErrorCode.NOT_COORDINATOR
        await bench.loop.advance(1)
        described = bench.groups.describe_consumers(GROUP)
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        again: Any = bench.groups.consumer_heartbeat(request, bench.context(1))
        assert (await again if isinstance(again, asyncio.Future) else again).member_epoch == 2

    asyncio.run(body())


def test_settings_of_a_group_count_before_the_brokers() -> None:
    world = ConsumerWorld()
    own = ConsumerSettings(session_timeout_ms=50_000, heartbeat_interval_ms=7_000)
    world.reconfigure(consumer_own={GROUP: own}.get, consumer_defaults=AT_ONCE)
    assert join(world, "a").heartbeat_interval_ms == 7_000
    world.pass_time(SESSION_MS)
    assert "a" in world.group().members
