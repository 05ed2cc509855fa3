"""Streams groups as a machine: timeouts, delays, the log's refusals, replaced groups, bounds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.errors import Refusal
from odradek.broker.groups.offsets import GroupOffsets
from odradek.broker.groups.registry import OwnConfigs
from odradek.broker.groups.share.groups import default_config
from odradek.broker.groups.state import ClassicGroup
from odradek.broker.groups.streams import checks, commits, configured, topology
from odradek.broker.groups.streams.configured import StatusCode, configure
from odradek.broker.groups.streams.group import StreamsGroup, StreamsState
from odradek.broker.groups.streams.member import MemberState
from odradek.broker.groups.streams.topology import Topology, to_stored
from odradek.broker.groups.streams.turn import StreamsGroupConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from odradek.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    TaskIds,
)
from odradek.protocol.messages.streams_group_heartbeat import Topology as Asked
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.consumer_world import ConsumerWorld, Crash, Crashed
from tests.broker.group_fakes import TOPIC_ID, FakeTopics
from tests.broker.streams_topologies import counting, stateless, subtopology, topic

AT_ONCE = StreamsGroupConfig(assignment_interval_ms=0, initial_delay_ms=0)
SESSION_MS = AT_ONCE.session_timeout_ms
NOTHING: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}


def world_of(config: StreamsGroupConfig = AT_ONCE) -> ConsumerWorld:
    """Return a world whose topic `t` has four partitions."""
    return ConsumerWorld(own=OwnConfigs(default_config, lambda group_id: config))


def send(world: ConsumerWorld, member_id: str, epoch: int, **fields: Any) -> Any:
    """Send a heartbeat."""
    request = StreamsGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **fields
    )
    return world.ask("streams.heartbeat", request, 0).response


def join(world: ConsumerWorld, member_id: str, asked: Asked | None = None, **fields: Any) -> Any:
    """Let a member join."""
    return send(
        world, member_id, 0, rebalance_timeout_ms=9_000, topology=asked or stateless("t"),
        process_id=member_id, **NOTHING, **fields,
    )  # fmt: skip


def group_of(world: ConsumerWorld) -> StreamsGroup:
    group = world.shard.streams.get("g")
    assert group is not None
    return group


def owning(*partitions: int) -> dict[str, Any]:
    """Return the fields of a member that owns active tasks."""
    tasks = [TaskIds(subtopology_id="0", partitions=[*partitions])] if partitions else []
    return {**NOTHING, "active_tasks": tasks}


def test_a_silent_member_is_removed() -> None:
    world = world_of()
    epoch = join(world, "a").member_epoch
    world.pass_time(SESSION_MS - 100)
    send(world, "a", epoch)
    world.pass_time(SESSION_MS - 100)
    assert "a" in group_of(world).members
    world.pass_time(200)
    assert group_of(world).state is StreamsState.EMPTY
    answer = send(world, "a", epoch)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_keeps_tasks_too_long_is_removed() -> None:
    world = world_of()
    epoch = join(world, "a").member_epoch
    join(world, "b")
    answer = send(world, "a", epoch, **owning(0, 1, 2, 3))
    assert [one.partitions for one in answer.active_tasks] == [[0, 1]]
    assert group_of(world).members["a"].state is MemberState.UNREVOKED_TASKS
    world.pass_time(9_001)
    assert list(group_of(world).members) == ["b"]


def test_tasks_are_given_up_before_another_member_gets_them() -> None:
    world = world_of()
    epoch = join(world, "a").member_epoch
    b_epoch = join(world, "b").member_epoch
    assert group_of(world).members["b"].state is MemberState.UNRELEASED_TASKS
    send(world, "a", epoch, **owning(0, 1, 2, 3))
    assert send(world, "b", b_epoch, **owning()).active_tasks is None
    epoch = send(world, "a", epoch, **owning(0, 1)).member_epoch
    answer = send(world, "b", b_epoch, **owning())
    assert [one.partitions for one in answer.active_tasks] == [[2, 3]]
    assert group_of(world).state is StreamsState.STABLE


def test_an_answer_that_was_lost_is_repeated() -> None:
    """Kafka 4.3 does not: the member would have no tasks until the next rebalance."""
    world = world_of()
    a_epoch, b_epoch = (join(world, name).member_epoch for name in "ab")
    send(world, "a", a_epoch, **owning(0, 1, 2, 3))
    send(world, "a", a_epoch, **owning(0, 1))
    lost = send(world, "b", b_epoch)
    assert [one.partitions for one in lost.active_tasks] == [[2, 3]]
    # As a client does that has had no answer: it reports its tasks, though they are the same.
    again = send(world, "b", b_epoch, **owning())
    assert again.active_tasks == lost.active_tasks
    assert send(world, "b", again.member_epoch, **owning(2, 3)).active_tasks is None


def test_the_first_assignment_waits_for_more_members() -> None:
    world = world_of(replace(AT_ONCE, initial_delay_ms=3_000))
    for name in ("a", "b"):
        answer = join(world, name)
        assert [one.status_code for one in answer.status] == [StatusCode.ASSIGNMENT_DELAYED]
    world.pass_time(3_001)
    assert {len(one.active["0"]) for one in group_of(world).targets.values()} == {2}
    answer = send(world, "a", answer.member_epoch)
    assert not answer.status and len(answer.active_tasks[0].partitions) == 2


def test_assignments_keep_their_distance() -> None:
    world = world_of(replace(AT_ONCE, assignment_interval_ms=1_000))
    join(world, "a")
    answer = join(world, "b")
    assert [one.status_code for one in answer.status] == [StatusCode.ASSIGNMENT_DELAYED]
    world.pass_time(1_001)
    assert not send(world, "b", answer.member_epoch).status


def test_another_number_of_standby_tasks_takes_effect_with_the_next_heartbeat() -> None:
    config = AT_ONCE
    world = ConsumerWorld(own=OwnConfigs(default_config, lambda group_id: config))
    for name in ("app-words-repartition", "app-counts-changelog"):
        world.grow(name, 4, name[-16:].encode().ljust(16))
    asked = counting("app", "t")
    join(world, "a", asked)
    answer = join(world, "b", asked)
    assert not any(one.standby for one in group_of(world).targets.values())
    config = replace(AT_ONCE, standby_count=1)
    send(world, "b", answer.member_epoch)
    targets = group_of(world).targets.values()
    assert sum(len(some) for one in targets for some in one.standby.values()) == 4


def test_a_shutdown_is_reported_until_the_group_is_empty() -> None:
    world = world_of()
    epoch = join(world, "a").member_epoch
    join(world, "b")
    send(world, "a", epoch, shutdown_application=True)
    answer = send(world, "b", group_of(world).members["b"].epoch)
    assert [one.status_code for one in answer.status] == [StatusCode.SHUTDOWN_APPLICATION]
    for name in ("a", "b"):
        send(world, name, -1)
    assert not join(world, "c").status


@pytest.mark.parametrize("crash", Crash)
def test_a_crash_leaves_all_of_a_heartbeat_or_nothing(crash: Crash) -> None:
    world = world_of()
    epoch = join(world, "a").member_epoch
    world.crash = crash
    with pytest.raises(Crashed):
        join(world, "b")
    assert ("b" in group_of(world).members) == (crash is Crash.AFTER_LOG)
    assert send(world, "a", epoch).error_code == 0
    assert join(world, "b").error_code == 0


def test_an_empty_classic_group_is_replaced_and_keeps_its_offsets() -> None:
    world = world_of()
    offsets = GroupOffsets()
    world.shard.groups["g"] = ClassicGroup("g", offsets=offsets)
    assert join(world, "a").error_code == 0
    assert group_of(world).offsets is offsets
    assert "g" not in world.shard.groups
    world.restart()
    assert group_of(world).members and "g" not in world.shard.groups


def test_a_heartbeat_that_is_refused_changes_nothing() -> None:
    world = world_of()
    epoch = join(world, "a").member_epoch
    written = len(world.log)
    answer = send(world, "a", epoch, rack_id="other", **owning(4))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert len(world.log) == written
    assert group_of(world).members["a"].rack_id is None


def committing(member_id: str, epoch: int, partition: int = 0, name: str = "t") -> Any:
    """Return a commit of an offset."""
    one = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=5, committed_metadata=""
    )
    topic_id = TOPIC_ID if name == "t" else bytes(16)
    topics = [OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[one])]
    return OffsetCommitRequest(
        group_id="g", member_id=member_id, generation_id_or_member_epoch=epoch, topics=topics
    )


def commit(world: ConsumerWorld, request: Any, version: int = 9) -> int:
    answer = world.ask("offsets.commit", request, version)
    return int(answer.topics[0].partitions[0].error_code)


def test_members_commit_at_their_epoch_or_at_that_of_their_tasks() -> None:
    world = world_of()
    first = join(world, "a").member_epoch
    join(world, "b")
    send(world, "a", first, **owning(0, 1, 2, 3))
    epoch = send(world, "a", first, **owning(0, 1)).member_epoch
    assert epoch > first
    assert commit(world, committing("a", epoch)) == 0
    assert commit(world, committing("a", first)) == 0
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert commit(world, committing("a", first, 2)) == stale
    assert commit(world, committing("a", first - 1)) == stale
    assert commit(world, committing("a", epoch + 1)) == stale
    assert commit(world, committing("a", first, name="other")) == stale
    assert commit(world, committing("c", epoch)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, committing("", -1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(world, committing("a", epoch), 8) == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("member_id", "behind", "expected"),
    [
        ("a", 0, ErrorCode.NONE),
        ("a", 1, ErrorCode.ILLEGAL_GENERATION),
        ("a", -1, ErrorCode.ILLEGAL_GENERATION),
        ("x", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.NONE),
    ],
)
def test_members_commit_in_transactions(
    member_id: str, behind: int | None, expected: ErrorCode
) -> None:
    world = world_of()
    epoch = join(world, "a").member_epoch
    one = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", producer_id=1, producer_epoch=0,
        generation_id=-1 if behind is None else epoch - behind, member_id=member_id,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[one])],
    )  # fmt: skip
    answer = world.ask("offsets.commit_in_transaction", request, 5)
    assert answer.topics[0].partitions[0].error_code == expected


def test_offsets_are_read_by_members_at_their_epoch_and_by_others_without_one() -> None:
    world = world_of()
    epoch = join(world, "a").member_epoch

    def problem(member_id: str | None, member_epoch: int) -> ErrorCode:
        asked = OffsetFetchRequestGroup(
            group_id="g", member_id=member_id, member_epoch=member_epoch, topics=None
        )
        return commits.fetch_problem(group_of(world), asked)

    assert problem(None, -1) is ErrorCode.NONE
    assert problem("a", epoch) is ErrorCode.NONE
    assert problem("a", epoch - 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert problem("b", epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_and_empty_groups_expire() -> None:
    world = world_of()
    epoch = join(world, "a").member_epoch
    assert commit(world, committing("a", epoch)) == 0
    late_ms = world.now_ms + world.config.offsets_retention_ms + 1
    world.perform(world.shard.offsets.expire(late_ms))
    assert group_of(world).offsets  # its members read the topic
    send(world, "a", -1)
    world.perform(world.shard.offsets.expire(late_ms))
    assert world.shard.streams.get("g") is None and world.shard.group("g") is None
    world.restart()
    assert world.shard.streams.get("g") is None and world.shard.group("g") is None


def refused(check: Callable[[], object]) -> ErrorCode:
    with pytest.raises(Refusal) as refusal:
        check()
    return refusal.value.code


def test_topologies_that_name_too_much_are_refused() -> None:
    topics = FakeTopics({})
    many = stateless(*(f"t{n}" for n in range(topology.NAMES_MAX + 1)))
    code = refused(lambda: topology.check(many, topics))
    assert code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    topics.by_name |= {f"t{n}": (n.to_bytes(16), 1) for n in range(2 * topology.NAMES_MAX)}
    topology.check(many, topics)


def test_topologies_with_more_tasks_than_partitions_are_refused() -> None:
    topics = FakeTopics({"t": (bytes(16), configured.TASKS_MAX)})
    parts = [subtopology(str(n), ["t"]) for n in range(2)]
    asked = Asked(epoch=0, subtopologies=parts)
    code = refused(lambda: configure(Topology.of(to_stored(asked)), topics))
    assert code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    alone = Asked(epoch=0, subtopologies=parts[:1])
    assert configure(Topology.of(to_stored(alone)), topics).is_ready


def test_members_that_claim_too_many_tasks_are_refused() -> None:
    tasks = [TaskIds(subtopology_id="0", partitions=[0] * (configured.TASKS_MAX + 1))]
    request = StreamsGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=1, **{**NOTHING, "active_tasks": tasks}
    )
    code = refused(lambda: checks.check_heartbeat(request, FakeTopics()))
    assert code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "asked",
    [
        Asked(epoch=-1, subtopologies=[subtopology("0", ["t"])]),
        Asked(epoch=0, subtopologies=[subtopology("0", ["t"])] * 2),
        Asked(epoch=0, subtopologies=[subtopology("0", ["t"], together=[([1], [])])]),
        Asked(epoch=0, subtopologies=[subtopology("0", ["t"], together=[([], [-1])])]),
        Asked(epoch=0, subtopologies=[subtopology("0", ["t"], inner=[topic("r", -1)])]),
        Asked(epoch=0, subtopologies=[subtopology("0", ["t"], changelogs=[topic("c")] * 2)]),
    ],
)
def test_mistakes_that_kafka_meets_unexpectedly_are_refused_with_a_sentence(asked: Asked) -> None:
    code = refused(lambda: topology.check(asked, FakeTopics()))
    assert code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def _calls_to_configure(count: int) -> int:
    """Return the number of calls that find the numbers of a chain of subtopologies."""
    # Each reads what the next one writes, so that Kafka goes through all of them again and again.
    parts = [
        subtopology(str(n), sinks=[f"r{n}"], inner=[topic(f"r{n + 1}")]) for n in range(count)
    ]
    parts.append(subtopology("last", ["t"], sinks=[f"r{count}"]))
    made = Topology.of(to_stored(Asked(epoch=0, subtopologies=parts)))
    calls = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(note)
    try:
        outcome = configure(made, FakeTopics())
    finally:
        sys.setprofile(None)
    assert len(outcome.missing) == count
    assert {one.partition_count for one in outcome.missing.values()} == {4}
    return calls


def test_a_long_chain_of_subtopologies_takes_work_in_proportion() -> None:
    assert _calls_to_configure(2_000) < 5 * _calls_to_configure(500)
