"""Offsets in transactions: who may commit them, when they count, and what waits for them."""

from __future__ import annotations

import pytest

from odradek.broker.groups import commits
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.state import GroupState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.group_world import GROUP, World, subscription

RETENTION_MS = GroupConfig().offsets_retention_ms
TP = ("t", 0)


@pytest.fixture
def world() -> World:
    return World()


def fetch(
    world: World, *, require_stable: bool, everything: bool = False
) -> dict[int, tuple[int, int]]:
    """Return (error, offset) of topic t's partitions."""
    wanted = OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])
    request = OffsetFetchRequestGroup(group_id=GROUP, topics=None if everything else [wanted])
    answer = commits.fetch(
        world.shard.groups.get(GROUP), request, require_stable=require_stable
    )
    return {
        p.partition_index: (p.error_code, p.committed_offset)
        for topic in answer.topics
        for p in topic.partitions
    }


class TestCommitting:
    @pytest.mark.parametrize("is_commit", [True, False])
    def test_an_offset_counts_once_the_transaction_is_committed(
        self, world: World, is_commit: bool
    ) -> None:
        world.commit({TP: 1})
        assert world.commit_errors(world.commit_in_transaction({TP: 7})) == [ErrorCode.NONE]
        assert world.offset(*TP) == 1
        assert world.error(world.end_transaction(is_commit=is_commit)) is ErrorCode.NONE
        assert world.offset(*TP) == world.replayed_offset(*TP) == (7 if is_commit else 1)

    def test_the_end_of_one_producers_transaction_leaves_the_others_open(
        self, world: World
    ) -> None:
        world.commit_in_transaction({TP: 1}, 1)
        world.commit_in_transaction({("t", 1): 2}, 2)
        world.end_transaction(1)
        assert (world.offset("t", 0), world.offset("t", 1)) == (1, None)

    def test_the_last_of_several_commits_of_a_transaction_counts(self, world: World) -> None:
        for offset in (1, 3, 2):
            world.commit_in_transaction({TP: offset})
        world.end_transaction()
        assert world.offset(*TP) == 2

    def test_a_plain_commit_that_came_later_takes_precedence(self, world: World) -> None:
        world.commit_in_transaction({TP: 7})
        world.commit({TP: 5})
        world.end_transaction()
        assert world.offset(*TP) == world.replayed_offset(*TP) == 5

    def test_of_two_transactions_the_one_that_wrote_last_takes_precedence(
        self, world: World
    ) -> None:
        world.commit_in_transaction({TP: 7}, 1)
        world.commit_in_transaction({TP: 8}, 2)
        world.end_transaction(2)
        world.end_transaction(1)
        assert world.offset(*TP) == world.replayed_offset(*TP) == 8

    def test_a_transaction_that_has_written_again_takes_precedence(self, world: World) -> None:
        world.commit_in_transaction({TP: 7}, 1)
        world.commit_in_transaction({TP: 8}, 2)
        world.commit_in_transaction({TP: 9}, 1)
        world.end_transaction(2)
        world.end_transaction(1)
        assert world.offset(*TP) == world.replayed_offset(*TP) == 9

    def test_an_append_that_fails_leaves_nothing(self, world: World) -> None:
        world.is_held = True
        number = world.commit_in_transaction({TP: 7})
        world.finish_append(ErrorCode.INVALID_PRODUCER_EPOCH)
        assert world.commit_errors(number) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert not world.group().offsets

    def test_a_marker_that_cannot_be_stored_decides_nothing(self, world: World) -> None:
        world.commit_in_transaction({TP: 7})
        world.is_held = True
        number = world.end_transaction()
        world.finish_append(ErrorCode.NOT_COORDINATOR)
        assert world.error(number) is ErrorCode.NOT_COORDINATOR
        assert world.offset(*TP) is None and world.group().offsets.undecided
        world.is_held = False
        world.end_transaction()
        assert world.offset(*TP) == 7

    def test_metadata_past_its_limit_is_refused_and_the_rest_is_stored(self, world: World) -> None:
        limit = world.config.offset_metadata_max_bytes
        number = world.commit_in_transaction({TP: 1}, metadata="x" * (limit + 1))
        assert world.commit_errors(number) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert not world.group().offsets.undecided

    def test_an_open_transaction_outlives_a_crash(self, world: World) -> None:
        world.commit_in_transaction({TP: 7})
        world.crash()
        assert fetch(world, require_stable=True)[0][0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        world.end_transaction()
        assert world.offset(*TP) == 7


class TestWhoMayCommit:
    def test_a_member_does_for_its_generation(self, world: World) -> None:
        (member,) = world.stable_group()
        number = world.commit_in_transaction({TP: 7}, member_id=member.member_id, generation=1)
        assert world.commit_errors(number) == [ErrorCode.NONE]

    def test_a_producer_that_names_no_member_does_in_any_group(self, world: World) -> None:
        world.stable_group()
        assert world.commit_errors(world.commit_in_transaction({TP: 7})) == [ErrorCode.NONE]

    def test_a_member_that_has_been_replaced_does_not(self, world: World) -> None:
        (member,) = world.stable_group()
        for member_id, generation, error in (
            ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
            ("x", -1, ErrorCode.UNKNOWN_MEMBER_ID),
            (member.member_id, 0, ErrorCode.ILLEGAL_GENERATION),
            (member.member_id, -1, ErrorCode.ILLEGAL_GENERATION),
        ):
            number = world.commit_in_transaction(
                {TP: 7}, member_id=member_id, generation=generation
            )
            assert world.commit_errors(number) == [error]
        assert not world.group().offsets

    def test_a_generation_of_an_unknown_group_is_refused(self, world: World) -> None:
        number = world.commit_in_transaction({TP: 7}, member_id="m", generation=3)
        assert world.commit_errors(number) == [ErrorCode.ILLEGAL_GENERATION]
        assert world.shard.groups == {}

    def test_between_join_and_sync_a_member_does(self, world: World) -> None:
        number = world.join_new()
        world.pass_time(3_000)
        member_id = world.joined(number).member_id
        commit = world.commit_in_transaction({TP: 7}, member_id=member_id, generation=1)
        assert world.commit_errors(commit) == [ErrorCode.NONE]

    def test_committing_so_does_not_keep_the_session(self, world: World) -> None:
        (member,) = world.stable_group()
        for offset in range(5):
            world.pass_time(9_999)
            world.commit_in_transaction({TP: offset}, member_id=member.member_id, generation=1)
        assert world.heartbeat(member.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


class TestFetching:
    def test_a_fetch_of_stable_offsets_is_refused_during_a_transaction(self, world: World) -> None:
        world.commit({TP: 1, ("t", 1): 2})
        world.commit_in_transaction({TP: 7})
        unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT, -1
        for everything in (False, True):
            stable = fetch(world, require_stable=True, everything=everything)
            assert stable == {0: unstable, 1: (0, 2)}
            plain = fetch(world, require_stable=False, everything=everything)
            assert plain == {0: (0, 1), 1: (0, 2)}

    def test_an_offset_that_another_commit_has_replaced_is_unstable_all_the_same(
        self, world: World
    ) -> None:
        world.commit_in_transaction({TP: 7})
        world.commit({TP: 5})
        assert fetch(world, require_stable=True)[0][0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        world.end_transaction()
        assert fetch(world, require_stable=True)[0] == (0, 5)


class TestRemoving:
    def test_a_deleted_group_takes_undecided_offsets_with_it(self, world: World) -> None:
        world.commit({("t", 1): 3})
        world.commit_in_transaction({TP: 7})
        world.delete()
        assert world.shard.groups == {} and world.replayed().groups == {}
        assert world.error(world.end_transaction()) is ErrorCode.NONE
        assert world.shard.groups == {} and world.replayed().groups == {}

    def test_a_deleted_topic_takes_undecided_offsets_with_it(self, world: World) -> None:
        world.commit_in_transaction({TP: 7, ("u", 0): 8})
        world.delete_topic("t", bytes([1] * 16))
        world.end_transaction()
        assert (world.offset("t", 0), world.offset("u", 0)) == (None, 8)

    def test_a_deleted_offset_does_not_come_back(self, world: World) -> None:
        world.commit_in_transaction({TP: 7})
        world.delete_offsets(TP)
        world.end_transaction()
        assert world.offset(*TP) is None and world.replayed_offset(*TP) is None

    def test_offsets_committed_after_the_deletion_count(self, world: World) -> None:
        world.commit_in_transaction({TP: 7})
        world.delete_offsets(TP)
        world.commit_in_transaction({TP: 8})
        world.end_transaction()
        assert world.offset(*TP) == world.replayed_offset(*TP) == 8

    def test_neither_group_nor_offset_expires_in_an_open_transaction(self, world: World) -> None:
        world.commit({TP: 1, ("t", 1): 2})
        world.commit_in_transaction({TP: 7})
        world.pass_time(RETENTION_MS)
        world.expire()
        assert (world.offset("t", 0), world.offset("t", 1)) == (1, None)
        world.end_transaction(is_commit=False)
        world.expire()
        assert world.shard.groups == {}

    def test_a_group_that_only_has_undecided_offsets_stays(self, world: World) -> None:
        world.commit_in_transaction({TP: 7})
        world.pass_time(RETENTION_MS)
        world.expire()
        assert world.group().state is GroupState.EMPTY
        world.end_transaction()
        assert world.offset(*TP) == 7

    def test_a_member_reads_its_topic_while_a_transaction_is_open(self, world: World) -> None:
        (member,) = world.stable_group(protocols=(("range", subscription("t")),))
        world.commit_in_transaction({TP: 7}, member_id=member.member_id, generation=1)
        number = world.delete_offsets(TP)
        (topic,) = world.answers[number].topics
        assert topic.partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        world.end_transaction()
        assert world.offset(*TP) == 7
