"""Committed offsets: who may commit, what is read back, and how offsets go."""

from __future__ import annotations

import pytest

from odradek.broker.groups import commits
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.records import OffsetRecord
from odradek.broker.groups.state import GroupState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.group_world import GROUP, World, subscription

RETENTION_MS = GroupConfig().offsets_retention_ms
ID_A, ID_B = bytes([1] * 16), bytes([2] * 16)


@pytest.fixture
def world() -> World:
    return World()


def fetch(
    world: World, wanted: dict[str, list[int]] | None, topic_id: bytes = bytes(16)
) -> dict[tuple[str, int], int]:
    topics = None
    if wanted is not None:
        topics = [
            OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=indexes)
            for name, indexes in wanted.items()
        ]
    request = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
    answer = commits.fetch(world.shard.groups.get(GROUP), request)
    assert answer.error_code == ErrorCode.NONE
    return {
        (topic.name, p.partition_index): p.committed_offset
        for topic in answer.topics
        for p in topic.partitions
    }


class TestCommitting:
    def test_a_member_commits_for_its_generation(self, world: World) -> None:
        (member,) = world.stable_group()
        number = world.commit({("t", 0): 7}, member_id=member.member_id, generation=1)
        assert world.commit_errors(number) == [ErrorCode.NONE]
        assert fetch(world, {"t": [0, 1]}) == {("t", 0): 7, ("t", 1): -1}

    def test_anybody_commits_for_a_group_without_members(self, world: World) -> None:
        world.commit({("t", 0): 7})
        assert world.group().state is GroupState.EMPTY and world.group().protocol_type is None
        assert fetch(world, None) == {("t", 0): 7}

    def test_nobody_else_commits_for_a_group_with_members(self, world: World) -> None:
        world.stable_group()
        for options in ({}, {"member_id": "x"}, {"member_id": "x", "generation": 1}):
            number = world.commit({("t", 0): 7}, **options)
            assert world.commit_errors(number) == [ErrorCode.UNKNOWN_MEMBER_ID]

    @pytest.mark.parametrize(
        ("version", "error"),
        [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
    )
    def test_a_generation_of_an_unknown_group_is_refused(
        self, world: World, version: int, error: ErrorCode
    ) -> None:
        number = world.commit({("t", 0): 7}, member_id="m", generation=3, version=version)
        assert world.commit_errors(number) == [error]
        assert world.shard.groups == {}

    def test_between_join_and_sync_a_member_is_to_sync_first(self, world: World) -> None:
        number = world.join_new()
        world.pass_time(3_000)
        member_id = world.joined(number).member_id
        commit = world.commit({("t", 0): 7}, member_id=member_id, generation=1)
        assert world.commit_errors(commit) == [ErrorCode.REBALANCE_IN_PROGRESS]

    def test_while_the_others_rejoin_a_member_may_still_commit(self, world: World) -> None:
        leader, other = world.stable_group(2)
        world.join(leader.member_id)
        commit = world.commit({("t", 0): 7}, member_id=other.member_id, generation=1)
        assert world.commit_errors(commit) == [ErrorCode.NONE]

    def test_committing_keeps_the_session(self, world: World) -> None:
        (member,) = world.stable_group()
        for offset in range(5):
            world.pass_time(9_999)
            world.commit({("t", 0): offset}, member_id=member.member_id, generation=1)
        assert world.heartbeat(member.member_id, 1) is ErrorCode.NONE

    def test_metadata_past_its_limit_is_refused_and_the_rest_is_stored(self, world: World) -> None:
        limit = world.config.offset_metadata_max_bytes
        assert world.commit_errors(world.commit({("t", 0): 1}, metadata="x" * limit)) == [
            ErrorCode.NONE
        ]
        number = world.commit({("t", 0): 2}, metadata="x" * (limit + 1))
        assert world.commit_errors(number) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert world.offset("t", 0) == 1

    def test_metadata_is_measured_as_java_measures_strings(self, world: World) -> None:
        world.with_config(offset_metadata_max_bytes=4)
        fits, too_long = (
            world.commit({("t", 0): 1}, metadata="🦉🦉"),
            world.commit({("t", 0): 2}, metadata="🦉🦉x"),
        )
        assert world.commit_errors(fits) == [ErrorCode.NONE]
        assert world.commit_errors(too_long) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]

    def test_an_offset_is_neither_acknowledged_nor_read_before_it_is_stored(
        self, world: World
    ) -> None:
        world.commit({("t", 0): 1})
        world.is_held = True
        number = world.commit({("t", 0): 2})
        assert world.answer(number) is None and fetch(world, {"t": [0]}) == {("t", 0): 1}
        world.finish_append()
        assert world.commit_errors(number) == [ErrorCode.NONE]
        assert fetch(world, {"t": [0]}) == {("t", 0): 2}

    def test_an_offset_that_cannot_be_stored_is_refused_and_forgotten(self, world: World) -> None:
        world.commit({("t", 0): 1})
        world.is_held = True
        number = world.commit({("t", 0): 2})
        world.finish_append(ErrorCode.NOT_COORDINATOR)
        assert world.commit_errors(number) == [ErrorCode.NOT_COORDINATOR]
        assert world.offset("t", 0) == 1 and not world.group().offsets.pending


class TestFetching:
    def test_an_unknown_group_has_no_offsets(self, world: World) -> None:
        assert fetch(world, {"t": [0]}) == {("t", 0): -1}
        assert fetch(world, None) == {}

    def test_an_offset_of_a_topic_before_this_one_of_its_name_is_not_read(
        self, world: World
    ) -> None:
        world.commit({("t", 0): 7}, topic_id=ID_A)
        assert fetch(world, {"t": [0]}, topic_id=ID_A) == {("t", 0): 7}
        assert fetch(world, {"t": [0]}, topic_id=ID_B) == {("t", 0): -1}
        assert fetch(world, {"t": [0]}) == {("t", 0): 7}

    def test_an_offset_without_a_topic_id_is_of_any_topic_of_the_name(self, world: World) -> None:
        world.commit({("t", 0): 7})
        assert fetch(world, {"t": [0]}, topic_id=ID_B) == {("t", 0): 7}


class TestExpiry:
    def test_an_offset_of_a_simple_group_expires_by_its_own_age(self, world: World) -> None:
        world.commit({("t", 0): 1})
        world.pass_time(1_000)
        world.commit({("t", 1): 2})
        world.pass_time(RETENTION_MS - 1_000)
        world.expire()
        assert fetch(world, None) == {("t", 1): 2}
        world.pass_time(1_000)
        world.expire()
        assert world.shard.groups == {} and world.replayed().groups == {}

    def test_a_used_group_keeps_its_offsets_from_when_it_became_empty(self, world: World) -> None:
        (member,) = world.stable_group(session_ms=1_000_000)
        world.commit({("t", 0): 1}, member_id=member.member_id, generation=1)
        world.pass_time(900_000)
        world.leave(member.member_id)
        world.pass_time(RETENTION_MS - 1)
        world.expire()
        assert world.offset("t", 0) == 1
        world.pass_time(1)
        world.expire()
        assert world.shard.groups == {}

    def test_the_moment_when_a_group_became_empty_survives_a_restart(self, world: World) -> None:
        world.stable_group(session_ms=10_000)
        world.pass_time(10_000)
        assert world.group().state is GroupState.EMPTY
        left_ms = world.now_ms
        world.pass_time(RETENTION_MS // 2)
        world.crash()
        assert world.group().state_since_ms == left_ms

    def test_a_group_keeps_what_it_reads_and_loses_what_it_no_longer_reads(
        self, world: World
    ) -> None:
        (member,) = world.stable_group(protocols=[("range", subscription("read"))])
        offsets = {("read", 0): 1, ("old", 0): 2}
        world.commit(offsets, member_id=member.member_id, generation=1)
        self._live_on(world, member.member_id)
        world.expire()
        assert fetch(world, None) == {("read", 0): 1}

    def test_a_group_whose_subscriptions_cannot_be_read_keeps_all(self, world: World) -> None:
        (member,) = world.stable_group(protocols=[("range", b"\xff")])
        world.commit({("t", 0): 1}, member_id=member.member_id, generation=1)
        self._live_on(world, member.member_id)
        world.expire()
        assert fetch(world, None) == {("t", 0): 1}

    def test_a_group_of_another_kind_keeps_all_while_it_has_members(self, world: World) -> None:
        (member,) = world.stable_group(protocol_type="connect")
        world.commit({("t", 0): 1}, member_id=member.member_id, generation=1)
        self._live_on(world, member.member_id)
        world.expire()
        assert fetch(world, None) == {("t", 0): 1}

    def test_a_retention_of_the_commit_counts_for_itself(self, world: World) -> None:
        world.commit({("t", 0): 1}, retention_ms=5_000, version=4)
        world.commit({("t", 1): 1})
        world.crash()
        world.pass_time(4_999)
        world.expire()
        assert set(fetch(world, None)) == {("t", 0), ("t", 1)}
        world.pass_time(1)
        world.expire()
        assert set(fetch(world, None)) == {("t", 1)}

    def test_a_retention_past_the_end_of_time_lasts_until_then(self, world: World) -> None:
        number = world.commit({("t", 0): 1}, retention_ms=2**63 - 1, version=4)
        assert world.commit_errors(number) == [ErrorCode.NONE]
        world.pass_time(2 * RETENTION_MS)
        world.expire()
        world.crash()
        assert world.offset("t", 0) == 1

    def test_an_offset_that_is_being_committed_again_does_not_expire(self, world: World) -> None:
        world.commit({("t", 0): 1})
        world.pass_time(RETENTION_MS)
        world.is_held = True
        number = world.commit({("t", 0): 2})
        world.expire()
        world.release()
        assert world.commit_errors(number) == [ErrorCode.NONE]
        assert world.offset("t", 0) == 2
        world.crash()
        assert world.offset("t", 0) == 2

    def test_an_offset_committed_while_it_expires_stays(self, world: World) -> None:
        world.commit({("t", 0): 1})
        world.pass_time(RETENTION_MS)
        world.is_held = True
        world.expire()
        number = world.commit({("t", 0): 2})
        world.release()
        assert world.commit_errors(number) == [ErrorCode.NONE]
        assert world.offset("t", 0) == world.replayed_offset("t", 0) == 2

    def test_many_offsets_go_in_batches_of_bounded_size(self, world: World) -> None:
        world.commit({("t", partition): 1 for partition in range(2_000)})
        world.pass_time(RETENTION_MS)
        world.is_held = True
        world.expire()
        assert max(len(records) for records, _ in world.appending) < 600
        world.release()
        assert world.shard.groups == {} and world.replayed().groups == {}

    def test_whoever_is_still_to_join_does_not_keep_a_group(self, world: World) -> None:
        member_id = world.answer(world.join()).member_id
        world.expire()
        assert world.shard.groups == {} and world.replayed().groups == {}
        assert world.error(world.join(member_id)) is ErrorCode.UNKNOWN_MEMBER_ID

    @staticmethod
    def _live_on(world: World, member_id: str) -> None:
        world.with_config(offsets_retention_ms=20_000)
        for _ in range(4):
            world.pass_time(5_000)
            assert world.heartbeat(member_id, 1) is ErrorCode.NONE


class TestDeleting:
    def test_an_empty_group_goes_with_its_offsets(self, world: World) -> None:
        world.commit({("t", 0): 1, ("u", 3): 4})
        assert world.error(world.delete()) is ErrorCode.NONE
        assert world.shard.groups == {} and world.replayed().groups == {}

    def test_a_group_with_members_stays(self, world: World) -> None:
        world.stable_group()
        assert world.error(world.delete()) is ErrorCode.NON_EMPTY_GROUP

    def test_a_group_whose_members_are_all_still_to_join_goes(self, world: World) -> None:
        member_id = world.answer(world.join()).member_id
        assert world.error(world.delete()) is ErrorCode.NONE
        assert world.error(world.delete()) is ErrorCode.GROUP_ID_NOT_FOUND
        assert world.error(world.join(member_id)) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_an_unknown_group_is_not_found(self, world: World) -> None:
        assert world.error(world.delete()) is ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_deletion_that_cannot_be_stored_leaves_everything(self, world: World) -> None:
        world.commit({("t", 0): 1})
        world.is_held = True
        number = world.delete()
        world.finish_append(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert world.error(number) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.offset("t", 0) == 1

    def test_offsets_on_their_way_to_the_log_are_deleted_too(self, world: World) -> None:
        world.commit({("t", 0): 1})
        world.is_held = True
        world.commit({("t", 1): 2})
        world.delete()
        world.release()
        assert world.shard.groups == {} and world.replayed().groups == {}

    def test_offsets_committed_after_the_deletion_stay(self, world: World) -> None:
        world.commit({("t", 0): 1})
        world.is_held = True
        world.delete()
        world.commit({("t", 1): 2})
        world.release()
        assert fetch(world, None) == {("t", 1): 2}
        world.crash()
        assert fetch(world, None) == {("t", 1): 2}

    def test_a_member_that_joins_during_the_deletion_of_its_group_is_not_lost(
        self, world: World
    ) -> None:
        world.commit({("t", 0): 1})
        world.is_held = True
        world.delete()
        member_id = world.answer(world.join()).member_id
        world.release()
        number = world.join(member_id)
        world.pass_time(3_000)
        assert world.joined(number).leads
        assert fetch(world, None) == {}

    def test_a_deleted_topic_takes_its_offsets_along(self, world: World) -> None:
        world.commit({("gone", 0): 1, ("stays", 0): 2})
        world.commit({("gone", 1): 3}, group="other")
        world.delete_topic("gone")
        assert fetch(world, None) == {("stays", 0): 2}
        assert world.offset("gone", 1, "other") is None
        world.crash()
        assert fetch(world, None) == {("stays", 0): 2}

    def test_offsets_of_the_next_topic_of_the_same_name_stay(self, world: World) -> None:
        world.commit({("t", 0): 1}, topic_id=ID_A)
        world.commit({("t", 1): 2}, topic_id=ID_B)
        world.delete_topic("t", ID_A)
        assert fetch(world, None) == {("t", 1): 2}


class TestDeletingOffsets:
    """OffsetDelete (KIP-496)."""

    def test_the_offsets_that_are_named_go_and_the_others_stay(self, world: World) -> None:
        world.commit({("t", 0): 1, ("t", 1): 2, ("u", 0): 3})
        number = world.delete_offsets(("t", 0), ("u", 0), ("u", 7))
        assert self._errors(world, number) == {
            ("t", 0): ErrorCode.NONE, ("u", 0): ErrorCode.NONE, ("u", 7): ErrorCode.NONE
        }  # fmt: skip
        assert fetch(world, None) == {("t", 1): 2}
        world.crash()
        assert fetch(world, None) == {("t", 1): 2}

    def test_a_partition_named_twice_is_answered_twice_and_deleted_once(
        self, world: World
    ) -> None:
        world.commit({("t", 0): 1})
        before = len(world.log)
        number = world.delete_offsets(("t", 0), ("t", 1), ("t", 0))
        (topic,) = world.answer(number).topics
        assert [one.partition_index for one in topic.partitions] == [0, 1, 0]
        assert len(world.log) == before + 1

    def test_it_is_answered_only_when_it_is_stored(self, world: World) -> None:
        world.commit({("t", 0): 1})
        world.is_held = True
        number = world.delete_offsets(("t", 0))
        assert world.answer(number) is None and world.offset("t", 0) == 1
        world.finish_append()
        assert self._errors(world, number) == {("t", 0): ErrorCode.NONE}
        assert world.offset("t", 0) is None

    def test_a_deletion_that_cannot_be_stored_is_refused(self, world: World) -> None:
        world.commit({("t", 0): 1})
        world.is_held = True
        number = world.delete_offsets(("t", 0))
        world.finish_append(ErrorCode.NOT_COORDINATOR)
        assert world.error(number) is ErrorCode.NOT_COORDINATOR
        assert world.answer(number).topics == [] and world.offset("t", 0) == 1

    def test_an_offset_on_its_way_to_the_log_goes_too(self, world: World) -> None:
        world.is_held = True
        world.commit({("t", 0): 1})
        world.delete_offsets(("t", 0))
        world.release()
        assert world.offset("t", 0) is None and world.replayed_offset("t", 0) is None

    def test_live_members_keep_the_offsets_of_what_they_read(self, world: World) -> None:
        (member,) = world.stable_group(protocols=[("range", subscription("read"))])
        offsets = {("read", 0): 1, ("old", 0): 2}
        world.commit(offsets, member_id=member.member_id, generation=1)
        number = world.delete_offsets(("read", 0), ("old", 0))
        assert self._errors(world, number) == {
            ("read", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ("old", 0): ErrorCode.NONE
        }  # fmt: skip
        assert fetch(world, None) == {("read", 0): 1}
        world.leave(member.member_id)
        assert self._errors(world, world.delete_offsets(("read", 0))) == {
            ("read", 0): ErrorCode.NONE
        }
        assert fetch(world, None) == {}

    def test_members_whose_subscriptions_cannot_be_read_keep_all(self, world: World) -> None:
        (member,) = world.stable_group(protocols=[("range", b"\xff")])
        world.commit({("t", 0): 1}, member_id=member.member_id, generation=1)
        number = world.delete_offsets(("t", 0))
        assert self._errors(world, number) == {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}

    def test_a_group_of_another_kind_keeps_all_while_it_has_members(self, world: World) -> None:
        (member,) = world.stable_group(protocol_type="connect")
        world.commit({("t", 0): 1}, member_id=member.member_id, generation=1)
        assert world.error(world.delete_offsets(("t", 0))) is ErrorCode.NON_EMPTY_GROUP
        assert world.offset("t", 0) == 1
        world.leave(member.member_id)
        assert self._errors(world, world.delete_offsets(("t", 0))) == {("t", 0): ErrorCode.NONE}

    def test_a_group_must_be_named_and_known(self, world: World) -> None:
        unknown, unnamed = world.delete_offsets(("t", 0)), world.delete_offsets(group="")
        assert world.error(unknown) is ErrorCode.GROUP_ID_NOT_FOUND
        assert world.error(unnamed) is ErrorCode.INVALID_GROUP_ID

    @staticmethod
    def _errors(world: World, number: int) -> dict[tuple[str, int], ErrorCode]:
        assert world.error(number) is ErrorCode.NONE
        return {
            (topic.name, p.partition_index): ErrorCode(p.error_code)  # type: ignore[call-arg]
            for topic in world.answer(number).topics
            for p in topic.partitions
        }


def test_replaying_a_tombstone_of_a_group_keeps_offsets_that_follow_or_remain(
    world: World,
) -> None:
    # A group that went over to the consumer protocol of KIP-848: its classic metadata is gone,
    # its offsets are in use.
    (member,) = world.stable_group()
    world.commit({("t", 0): 1}, member_id=member.member_id, generation=1)
    world.leave(member.member_id)
    world.log.append(world.group_tombstone())
    world.crash()
    assert world.group().protocol_type is None and fetch(world, None) == {("t", 0): 1}


def test_pending_offsets_are_counted_for_each_commit(world: World) -> None:
    world.commit({("t", 0): 1})
    world.is_held = True
    first, second = world.commit({("t", 0): 2}), world.commit({("t", 0): 3})
    assert world.group().offsets.pending == {("t", 0): 2}
    assert commits.all_offsets(world.group()) == (OffsetRecord(GROUP, "t", 0, None),)
    world.finish_append()
    assert world.answer(first) is not None and world.answer(second) is None
    assert world.group().offsets.pending == {("t", 0): 1}
    world.finish_append()
    assert not world.group().offsets.pending
