"""How classic groups form, rebalance, and lose members, on a clock that tests move."""

from __future__ import annotations

import time

import pytest

from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.membership import Member, Membership
from odradek.broker.groups.state import GroupState
from odradek.protocol.errors import ErrorCode
from tests.broker.group_world import (
    GROUP,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    World,
    identity,
    subscription,
)

DELAY_MS = GroupConfig().initial_rebalance_delay_ms


@pytest.fixture
def world() -> World:
    return World()


class TestJoining:
    def test_a_newcomer_is_given_an_id_and_asked_to_come_back_with_it(self, world: World) -> None:
        first = world.join(client_id="spark")
        assert world.error(first) is ErrorCode.MEMBER_ID_REQUIRED
        member_id = world.answer(first).member_id
        assert member_id.startswith("spark-")
        second = world.join(member_id)
        world.pass_time(DELAY_MS)
        assert world.joined(second).member_id == member_id

    def test_before_version_4_a_newcomer_is_a_member_at_once(self, world: World) -> None:
        number = world.join(version=3)
        assert world.answer(number) is None
        world.pass_time(DELAY_MS)
        assert world.joined(number).leads

    def test_a_new_group_waits_for_its_delay(self, world: World) -> None:
        number = world.join_new()
        world.pass_time(DELAY_MS - 1)
        assert world.answer(number) is None
        world.pass_time(1)
        assert world.joined(number).generation == 1

    def test_each_newcomer_extends_the_delay_by_another_step(self, world: World) -> None:
        first = world.join_new()
        world.pass_time(DELAY_MS - 1)
        second = world.join_new()
        world.pass_time(DELAY_MS)
        assert world.answer(first) is None
        world.pass_time(1)
        assert world.joined(first).generation == world.joined(second).generation == 1
        assert len(world.joined(first).members) == 2

    def test_the_delay_never_passes_the_rebalance_timeout(self, world: World) -> None:
        rebalance_ms = 2 * DELAY_MS
        first = world.join_new(rebalance_ms=rebalance_ms)
        for _ in range(20):
            world.pass_time(rebalance_ms // 20)
            world.join_new(rebalance_ms=rebalance_ms)
        assert world.answer(first) is not None

    def test_only_the_leader_gets_the_members_and_their_metadata(self, world: World) -> None:
        first = world.join_new(protocols=[("range", b"one")])
        second = world.join_new(protocols=[("range", b"two")])
        world.pass_time(3 * DELAY_MS)
        leader, follower = world.answer(first), world.answer(second)
        assert leader.leader == follower.leader == leader.member_id
        assert [m.metadata for m in leader.members] == [b"one", b"two"]
        assert follower.members == []
        assert leader.protocol_name == "range" and leader.protocol_type == "consumer"

    def test_the_protocol_is_one_that_all_know_and_most_prefer(self, world: World) -> None:
        a, b, c = (("a", b""), ("b", b""), ("c", b""))
        numbers = [
            world.join_new(protocols=protocols) for protocols in ([a, b, c], [b, a], [b, a, c])
        ]
        world.pass_time(4 * DELAY_MS)
        assert {world.answer(number).protocol_name for number in numbers} == {"b"}

    @pytest.mark.parametrize(
        ("protocol_type", "protocols"),
        [("consumer", [("sticky", b"")]), ("connect", RANGE), ("", RANGE), ("consumer", [])],
    )
    def test_a_member_that_shares_no_protocol_is_refused(
        self, world: World, protocol_type: str, protocols: list[tuple[str, bytes]]
    ) -> None:
        world.stable_group()
        number = world.join(protocol_type=protocol_type, protocols=protocols)
        assert world.error(number) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_a_refused_first_member_leaves_an_empty_group_behind(self, world: World) -> None:
        number = world.join(protocols=[])
        assert world.error(number) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        (group,) = world.shard.groups.values()
        assert group.state is GroupState.EMPTY and world.replayed().groups.keys() == {GROUP}

    def test_a_protocol_named_twice_counts_once(self, world: World) -> None:
        number = world.join_new(protocols=[("range", b"1"), ("range", b"2")])
        other = world.join_new()
        world.pass_time(3 * DELAY_MS)
        assert world.answer(number).protocol_name == world.answer(other).protocol_name == "range"

    @pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
    def test_a_session_timeout_outside_the_limits_is_refused(
        self, world: World, session_ms: int
    ) -> None:
        number = world.join(session_ms=session_ms)
        assert world.error(number) is ErrorCode.INVALID_SESSION_TIMEOUT

    def test_the_empty_group_id_is_refused(self, world: World) -> None:
        world.commit({("t", 0): 1}, group="")  # which makes a group of that id, as in Kafka
        assert world.error(world.join(group="")) is ErrorCode.INVALID_GROUP_ID
        assert world.error(world.sync("m", 1, group="")) is ErrorCode.INVALID_GROUP_ID
        assert world.heartbeat("m", 1, group="") is ErrorCode.INVALID_GROUP_ID

    def test_an_id_that_was_not_given_out_is_unknown(self, world: World) -> None:
        assert world.error(world.join("made-up")) is ErrorCode.UNKNOWN_MEMBER_ID
        world.stable_group()
        assert world.error(world.join("made-up")) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_group_takes_no_more_members_than_its_limit(self) -> None:
        world = World(GroupConfig(max_size=2))
        world.stable_group(2)
        assert world.error(world.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_when_the_limit_was_lowered_the_last_to_rejoin_is_out(self, world: World) -> None:
        members = world.stable_group(3)
        world.with_config(max_size=2)
        world.crash()
        numbers = [world.join(m.member_id) for m in members]
        errors = [world.answer(n) and world.error(n) for n in numbers]
        assert errors == [None, None, ErrorCode.GROUP_MAX_SIZE_REACHED]
        world.pass_time(REBALANCE_MS)
        assert {world.joined(n).generation for n in numbers[:2]} == {2}

    def test_a_member_who_asks_again_is_answered_once_for_each_request(self, world: World) -> None:
        leader, other = world.stable_group(2)
        first = world.join(leader.member_id)
        again = world.join(leader.member_id)
        assert world.error(first) is ErrorCode.REBALANCE_IN_PROGRESS
        assert world.answer(again) is None
        world.join(other.member_id)
        assert world.joined(again).generation == 2

    def test_a_follower_that_lost_its_answer_gets_the_same_generation(self, world: World) -> None:
        _, follower = world.stable_group(2)
        number = world.join(follower.member_id)
        assert world.joined(number).generation == follower.generation
        assert world.group().state is GroupState.STABLE

    def test_changed_metadata_makes_the_group_rebalance(self, world: World) -> None:
        leader, follower = world.stable_group(2)
        number = world.join(follower.member_id, protocols=[("range", b"new topics")])
        assert world.answer(number) is None
        assert world.heartbeat(leader.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_leader_that_joins_again_makes_the_group_rebalance(self, world: World) -> None:
        leader, follower = world.stable_group(2)
        number = world.join(leader.member_id)
        assert world.group().state is GroupState.PREPARING_REBALANCE
        world.join(follower.member_id)
        assert world.joined(number).generation == 2


class TestSyncing:
    def test_all_get_their_own_part_of_the_leaders_assignment(self, world: World) -> None:
        numbers = [world.join_new() for _ in range(3)]
        world.pass_time(4 * DELAY_MS)
        members = [world.joined(number) for number in numbers]
        parked = [world.sync(m.member_id, 1) for m in members[1:]]
        assert all(world.answer(number) is None for number in parked)
        given = {m.member_id: m.member_id.encode() for m in members}
        first = world.sync(members[0].member_id, 1, given)
        for number, member in zip([first, *parked], members, strict=True):
            assert world.answer(number).assignment == given[member.member_id]
        assert world.group().state is GroupState.STABLE

    def test_nobody_is_answered_before_the_assignment_is_stored(self, world: World) -> None:
        numbers = [world.join_new() for _ in range(2)]
        world.pass_time(3 * DELAY_MS)
        leader, follower = (world.joined(number) for number in numbers)
        world.is_held = True
        waiting = [
            world.sync(follower.member_id, 1),
            world.sync(leader.member_id, 1, {leader.member_id: b"all"}),
        ]
        assert [world.answer(n) for n in waiting] == [None, None]
        world.finish_append()
        assert [world.answer(n).assignment for n in waiting] == [b"", b"all"]

    def test_when_the_log_fails_the_members_join_again(self, world: World) -> None:
        number = world.join_new()
        world.pass_time(DELAY_MS)
        world.is_held = True
        leader = world.joined(number)
        sync = world.sync(leader.member_id, 1, {leader.member_id: b"all"})
        world.finish_append(ErrorCode.NOT_COORDINATOR)
        assert world.error(sync) is ErrorCode.NOT_COORDINATOR
        assert world.heartbeat(leader.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_an_assignment_of_a_generation_that_has_passed_is_given_to_nobody(
        self, world: World
    ) -> None:
        numbers = [world.join_new() for _ in range(2)]
        world.pass_time(3 * DELAY_MS)
        leader, follower = (world.joined(number) for number in numbers)
        world.is_held = True
        sync = world.sync(leader.member_id, 1, {follower.member_id: b"old"})
        world.leave(follower.member_id)
        assert world.error(sync) is ErrorCode.REBALANCE_IN_PROGRESS
        rejoined = world.join(leader.member_id)
        assert world.joined(rejoined).generation == 2
        world.finish_append()
        assert world.group().state is GroupState.COMPLETING_REBALANCE
        assert world.group().membership.members[leader.member_id].assignment == b""

    def test_a_member_that_does_not_sync_in_time_is_out(self, world: World) -> None:
        numbers = [world.join_new() for _ in range(2)]
        world.pass_time(3 * DELAY_MS)
        leader, follower = (world.joined(number) for number in numbers)
        given = {leader.member_id: b"1", follower.member_id: b"2"}
        world.sync(leader.member_id, 1, given)
        for _ in range(REBALANCE_MS // SESSION_MS * 2):
            world.heartbeat(leader.member_id, 1)
            world.heartbeat(follower.member_id, 1)
            world.pass_time(SESSION_MS // 2)
        assert world.heartbeat(follower.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat(leader.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_stable_group_gives_a_late_member_its_assignment_at_once(self, world: World) -> None:
        numbers = [world.join_new() for _ in range(2)]
        world.pass_time(3 * DELAY_MS)
        leader, follower = (world.joined(number) for number in numbers)
        world.sync(leader.member_id, 1, {follower.member_id: b"yours"})
        late = world.sync(follower.member_id, 1)
        assert world.answer(late).assignment == b"yours"

    def test_a_sync_for_another_protocol_is_refused(self, world: World) -> None:
        (member,) = world.stable_group()
        for wrong in ({"protocol": "sticky"}, {"protocol_type": "connect"}):
            number = world.sync(member.member_id, 1, **wrong)  # type: ignore[arg-type]
            assert world.error(number) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_requests_of_another_generation_are_refused(self, world: World) -> None:
        (member,) = world.stable_group()
        assert world.error(world.sync(member.member_id, 7)) is ErrorCode.ILLEGAL_GENERATION
        assert world.heartbeat(member.member_id, 7) is ErrorCode.ILLEGAL_GENERATION
        number = world.commit({("t", 0): 1}, member_id=member.member_id, generation=7)
        assert world.commit_errors(number) == [ErrorCode.ILLEGAL_GENERATION]

    def test_during_the_join_phase_members_are_asked_to_rejoin(self, world: World) -> None:
        leader, follower = world.stable_group(2)
        world.join(leader.member_id)
        number = world.sync(follower.member_id, 1)
        assert world.error(number) is ErrorCode.REBALANCE_IN_PROGRESS


class TestLosingMembers:
    def test_heartbeats_keep_a_member(self, world: World) -> None:
        (member,) = world.stable_group()
        for _ in range(10):
            world.pass_time(SESSION_MS - 1)
            assert world.heartbeat(member.member_id, 1) is ErrorCode.NONE

    def test_a_silent_member_is_out_and_the_others_rebalance(self, world: World) -> None:
        leader, silent = world.stable_group(2)
        world.pass_time(SESSION_MS - 1)
        world.heartbeat(leader.member_id, 1)
        world.pass_time(1)
        assert world.heartbeat(silent.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert world.heartbeat(leader.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        rejoined = world.join(leader.member_id)
        assert world.joined(rejoined).members == (leader.member_id,)

    def test_when_the_leader_fails_another_member_leads(self, world: World) -> None:
        leader, other = world.stable_group(2)
        world.pass_time(SESSION_MS - 1)
        world.heartbeat(other.member_id, 1)
        world.pass_time(1)
        rejoined = world.joined(world.join(other.member_id))
        assert rejoined.leads and rejoined.generation == 2
        assert leader.member_id not in world.group().membership

    def test_a_member_that_does_not_rejoin_within_the_rebalance_timeout_is_out(
        self, world: World
    ) -> None:
        leader, slow = world.stable_group(2)
        rejoined = world.join(leader.member_id)
        for _ in range(REBALANCE_MS // SESSION_MS * 2):
            assert world.heartbeat(slow.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
            assert world.answer(rejoined) is None
            world.pass_time(SESSION_MS // 2)
        assert world.joined(rejoined).members == (leader.member_id,)
        assert world.heartbeat(slow.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_parked_join_stands_for_heartbeats(self, world: World) -> None:
        leader, other = world.stable_group(2)
        rejoined = world.join(leader.member_id)
        for _ in range(4):
            world.pass_time(SESSION_MS - 1)
            world.heartbeat(other.member_id, 1)
        assert world.answer(rejoined) is None and leader.member_id in world.group().membership

    def test_a_newcomer_whose_join_is_parked_too_long_is_out(self) -> None:
        world = World(GroupConfig(new_member_join_timeout_ms=20_000))
        (leader,) = world.stable_group(rebalance_ms=600_000)
        newcomer = world.join_new(rebalance_ms=600_000)
        for _ in range(4):
            world.heartbeat(leader.member_id, 1)
            world.pass_time(5_000)
        assert world.error(newcomer) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_pending_member_that_does_not_come_back_holds_nobody_up_for_long(
        self, world: World
    ) -> None:
        (leader,) = world.stable_group()
        world.join()  # Is given an id, and is never seen again.
        rejoined = world.join(leader.member_id)
        assert world.answer(rejoined) is None
        world.pass_time(SESSION_MS)
        assert world.joined(rejoined).generation == 2

    def test_a_member_that_leaves_makes_the_others_rebalance(self, world: World) -> None:
        leader, other = world.stable_group(2)
        assert world.leave(other.member_id) == [ErrorCode.NONE]
        assert world.heartbeat(leader.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        assert world.heartbeat(other.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_the_last_member_leaves_an_empty_group(self, world: World) -> None:
        (member,) = world.stable_group()
        world.leave(member.member_id)
        group = world.group()
        assert group.state is GroupState.EMPTY and group.generation == 2
        assert group.protocol is None and group.membership.leader_id is None
        restored = world.replayed().groups[GROUP]
        assert restored.state is GroupState.EMPTY and restored.generation == 2

    def test_a_batch_of_members_leaves_each_with_its_own_result(self, world: World) -> None:
        leader, other = world.stable_group(2)
        errors = world.leave(other.member_id, "stranger", leader.member_id)
        assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]

    def test_leaving_a_group_that_is_not_there_is_an_error_of_each_member(
        self, world: World
    ) -> None:
        assert world.leave("a", "b") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2

    def test_a_pending_member_is_never_an_instance(self, world: World) -> None:
        pending = world.answer(world.join()).member_id
        answer = world.answer(world.join(pending, instance="static"))
        assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
        assert world.join_new()

    def test_a_pending_member_can_leave(self, world: World) -> None:
        world.stable_group()
        pending = world.answer(world.join()).member_id
        assert world.leave(pending) == [ErrorCode.NONE]
        assert world.error(world.join(pending)) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_leaving_answers_what_the_member_had_parked(self, world: World) -> None:
        leader, other = world.stable_group(2)
        parked = world.join(other.member_id, protocols=[("range", b"changed")])
        world.leave(other.member_id)
        assert world.error(parked) is ErrorCode.UNKNOWN_MEMBER_ID
        newcomer = world.join_new()
        generation = world.joined(world.join(leader.member_id)).generation
        follower = world.joined(newcomer).member_id
        parked = world.sync(follower, generation)
        world.leave(follower)
        assert world.error(parked) is ErrorCode.UNKNOWN_MEMBER_ID


class TestStaticMembers:
    def two(self, world: World, **options: object) -> tuple[str, str]:
        """Make a stable group of two static members, "a" leading; return their ids."""
        numbers = [world.join(instance=name, **options) for name in "ab"]  # type: ignore[arg-type]
        world.pass_time(3 * DELAY_MS)
        members = [world.joined(number) for number in numbers]
        world.sync_all(members)
        return members[0].member_id, members[1].member_id

    def test_a_static_member_needs_no_second_request(self, world: World) -> None:
        number = world.join(instance="a")
        world.pass_time(DELAY_MS)
        assert world.joined(number).member_id.startswith("a-")

    def test_a_restarted_follower_takes_its_place_without_a_rebalance(self, world: World) -> None:
        leader, follower = self.two(world)
        joined = world.joined(world.join(instance="b"))
        assert joined.generation == 1 and joined.member_id != follower
        assert world.group().state is GroupState.STABLE
        sync = world.sync(joined.member_id, 1, instance="b")
        assert world.answer(sync).assignment == follower.encode()
        assert world.heartbeat(leader, 1, instance="a") is ErrorCode.NONE

    def test_a_restarted_leader_is_asked_to_skip_the_assignment(self, world: World) -> None:
        self.two(world)
        answer = world.answer(world.join(instance="a"))
        assert answer.skip_assignment and answer.leader == answer.member_id
        assert len(answer.members) == 2

    def test_before_version_9_a_restarted_leader_does_not_learn_that_it_leads(
        self, world: World
    ) -> None:
        leader, _ = self.two(world)
        answer = world.answer(world.join(instance="a", version=8))
        assert answer.leader == leader != answer.member_id
        assert answer.members == [] and not answer.skip_assignment

    def test_a_restart_is_answered_when_the_new_id_is_stored(self, world: World) -> None:
        self.two(world)
        world.is_held = True
        number = world.join(instance="b")
        assert world.answer(number) is None
        world.finish_append()
        assert world.replayed().groups[GROUP].membership.member_by_instance["b"] == (
            world.joined(number).member_id
        )

    def test_a_restart_that_cannot_be_stored_is_undone(self, world: World) -> None:
        _, follower = self.two(world)
        world.is_held = True
        before = world.group().membership.members[follower]
        number = world.join(instance="b", session_ms=7_000, protocols=[*RANGE, ("sticky", b"")])
        world.finish_append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert world.error(number) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.heartbeat(follower, 1, instance="b") is ErrorCode.NONE
        assert world.group().membership.members[follower] == before

    def test_a_rebalance_that_begins_meanwhile_answers_the_restarted(self, world: World) -> None:
        leader, _ = self.two(world)
        world.is_held = True
        number = world.join(instance="b")
        world.join(leader, instance="a")
        world.release()
        assert world.joined(number).generation == 2

    def test_a_replaced_member_is_fenced(self, world: World) -> None:
        _, follower = self.two(world)
        world.join(instance="b")
        assert world.heartbeat(follower, 1, instance="b") is ErrorCode.FENCED_INSTANCE_ID
        sync = world.sync(follower, 1, instance="b")
        assert world.error(sync) is ErrorCode.FENCED_INSTANCE_ID
        join = world.join(follower, instance="b")
        assert world.error(join) is ErrorCode.FENCED_INSTANCE_ID
        commit = world.commit({("t", 0): 1}, member_id=follower, generation=1, instance="b")
        assert world.commit_errors(commit) == [ErrorCode.FENCED_INSTANCE_ID]
        assert world.leave(identity(follower, "b")) == [ErrorCode.FENCED_INSTANCE_ID]

    @pytest.mark.parametrize("version", [5, 9])
    def test_the_parked_request_of_a_replaced_member_is_answered(
        self, world: World, version: int
    ) -> None:
        leader, follower = self.two(world)
        world.join(leader, instance="a", protocols=[*RANGE, ("sticky", b"")])
        assert world.answer(parked := world.join(instance="c", version=version)) is None
        world.join(instance="c")
        assert world.error(parked) is ErrorCode.FENCED_INSTANCE_ID
        assert (world.answer(parked).protocol_name is None) == (version >= 7)
        assert follower in world.group().membership

    def test_a_restart_with_another_protocol_makes_the_group_rebalance(self, world: World) -> None:
        both = [("range", b""), ("sticky", b"")]
        leader, _ = self.two(world, protocols=both)
        number = world.join(instance="b", protocols=[("sticky", b"")])
        assert world.answer(number) is None
        assert world.heartbeat(leader, 1, instance="a") is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_restart_during_the_sync_phase_makes_the_group_rebalance(self, world: World) -> None:
        numbers = [world.join(instance=name) for name in "ab"]
        world.pass_time(3 * DELAY_MS)
        leader = world.joined(numbers[0]).member_id
        sync = world.sync(world.joined(numbers[1]).member_id, 1, instance="b")
        number = world.join(instance="b")
        assert world.error(sync) is ErrorCode.FENCED_INSTANCE_ID
        assert world.answer(number) is None
        assert world.heartbeat(leader, 1, instance="a") is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_static_member_stays_while_it_does_not_rejoin(self, world: World) -> None:
        leader, follower = self.two(world, session_ms=5 * REBALANCE_MS)
        number = world.join(leader, instance="a", session_ms=5 * REBALANCE_MS)
        world.pass_time(REBALANCE_MS)
        assert set(world.joined(number).members) == {leader, follower}

    def test_static_members_that_are_all_away_are_waited_for(self, world: World) -> None:
        members = self.two(world, session_ms=5 * REBALANCE_MS)
        third = world.join_new(session_ms=5 * REBALANCE_MS)
        member_id = next(m for m in world.group().membership.members if m not in members)
        world.leave(member_id)
        assert world.error(third) is ErrorCode.UNKNOWN_MEMBER_ID
        world.pass_time(3 * REBALANCE_MS)
        assert world.group().state is GroupState.PREPARING_REBALANCE
        assert set(world.group().membership.members) == set(members)
        world.pass_time(3 * REBALANCE_MS)
        assert world.group().state is GroupState.EMPTY

    def test_the_first_member_back_waits_no_longer_than_the_rebalance_timeout(
        self, world: World
    ) -> None:
        _, follower = self.two(world, session_ms=5 * REBALANCE_MS)
        world.join_new(session_ms=5 * REBALANCE_MS)
        world.leave(next(reversed(world.group().membership.members)))
        world.pass_time(REBALANCE_MS)
        number = world.join(follower, instance="b", session_ms=5 * REBALANCE_MS)
        assert world.answer(number) is None
        world.pass_time(REBALANCE_MS)
        assert world.joined(number).leads

    def test_static_members_without_a_rebalance_timeout_do_not_keep_the_broker_busy(
        self, world: World
    ) -> None:
        self.two(world, rebalance_ms=0, session_ms=100_000)
        third = world.join_new(rebalance_ms=0)
        assert world.answer(third) is None
        begun = len(world.notes)
        world.pass_time(100_000)
        assert len(world.notes) - begun < 250

    def test_static_members_leave_by_their_instance_alone(self, world: World) -> None:
        self.two(world)
        errors = world.leave(identity(instance="b"), identity(instance="nobody"), identity())
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert errors == [ErrorCode.NONE, unknown, unknown]

    def test_an_instance_without_members_is_unknown(self, world: World) -> None:
        leader, _ = self.two(world)
        assert world.heartbeat(leader, 1, instance="z") is ErrorCode.UNKNOWN_MEMBER_ID


class TestRestartingTheBroker:
    def test_members_go_on_as_if_nothing_had_happened(self, world: World) -> None:
        members = world.stable_group(3)
        world.crash()
        assert world.group().state is GroupState.STABLE
        for member in members:
            assert world.heartbeat(member.member_id, 1) is ErrorCode.NONE
            sync = world.sync(member.member_id, 1)
            assert world.answer(sync).assignment == member.member_id.encode()

    def test_members_that_do_not_come_back_time_out(self, world: World) -> None:
        world.stable_group(2)
        world.crash()
        world.pass_time(SESSION_MS)
        assert world.group().state is GroupState.EMPTY

    def test_the_subscription_is_known_again(self, world: World) -> None:
        world.stable_group(protocols=[("range", subscription("b", "a"))])
        world.crash()
        assert world.group().subscribed_topics == frozenset("ab")

    def test_handing_the_partition_away_answers_everybody(self, world: World) -> None:
        leader, follower = world.stable_group(2)
        join = world.join(leader.member_id)
        other = world.join_new(group="other")
        world.pass_time(DELAY_MS)
        world.join_new(group="other")
        effects = world.shard.unload(world.now_ms)
        world.carry_out(effects)
        assert world.error(join) is ErrorCode.NOT_COORDINATOR
        assert world.asked == set(world.answers)
        assert world.heartbeat(follower.member_id, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.joined(other).leads


@pytest.mark.slow
def test_members_leave_as_fast_from_the_first_as_from_the_last() -> None:
    """The lead goes from one to the next, each of them found at once."""

    def leaving_s(order: int) -> float:
        membership = Membership()
        ids = [f"member-{number}" for number in range(40_000)]
        for member_id in ids:
            membership.add(Member(member_id, None, "c", "h", 1_000, 1_000, RANGE))
        begun_s = time.process_time()
        for member_id in ids[::order]:
            membership.remove(member_id)
        assert membership.leader_id is None
        return time.process_time() - begun_s

    assert min(leaving_s(1) for _ in range(3)) < 4 * min(leaving_s(-1) for _ in range(3))
