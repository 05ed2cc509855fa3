"""The coordinator of groups around its shards: answers, the log, deadlines, loading, closing."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.coordination.seams import StoredBatch
from odradek.broker.errors import Refusal
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.coordinator import GroupCoordinator
from odradek.broker.process.logs import TextFormatter
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group import LeaveGroupRequest
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.storage.errors import BatchTooLarge, BucketFailure, CorruptFile, DiskFailure
from odradek.storage.transactions import Marker
from tests.broker.group_fakes import Bench, settle
from tests.broker.group_world import code
from tests.support.requests import committing


def scenario(test: Callable[[Bench], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on a loop, with a coordinator that has been loaded."""

    @functools.wraps(test)
    def run() -> None:
        async def body() -> None:
            bench = Bench()
            await bench.groups.load()
            await test(bench)

        asyncio.run(body())

    del run.__wrapped__  # pytest would look for a fixture `bench`.
    return run


def join_request(group: str = "g", member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def commit_request(offset: int = 7, group: str = "g", partition: int = 0) -> OffsetCommitRequest:
    return committing(group, {"t": {partition: offset}}, metadata=None)


def committed(groups: GroupCoordinator, group: str = "g") -> dict[int, int]:
    request = OffsetFetchRequestGroup(group_id=group, topics=None)
    answer = groups.fetch(request, require_stable=False)
    assert not isinstance(answer, Awaitable)
    return {p.partition_index: p.committed_offset for t in answer.topics for p in t.partitions}


def error_of(answer: Any) -> ErrorCode:
    """Return the error of an OffsetCommit's answer."""
    done = answer.result() if isinstance(answer, asyncio.Future) else answer
    return code(done.topics[0].partitions[0].error_code)


async def stable(bench: Bench) -> str:
    """Make a group "g" of one member; return its id."""
    context = bench.context(3)
    answer: Any = bench.groups.join(join_request(), context)
    await bench.loop.advance(3.1)
    member_id: str = answer.result().member_id
    own = SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")
    sync: Any = bench.groups.sync(
        SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[own]),
        context,
    )
    assert sync.assignment == b"mine"
    return member_id


def heartbeat(bench: Bench, member_id: str) -> ErrorCode:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    answer: Any = bench.groups.heartbeat(request, bench.context(4))
    return code(answer.error_code)


@scenario
async def test_an_answer_that_is_ready_at_once_is_no_future(bench: Bench) -> None:
    answer: Any = bench.groups.join(join_request(), bench.context())
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert error_of(bench.groups.commit(commit_request(), bench.context())) is ErrorCode.NONE


@scenario
async def test_a_parked_join_is_answered_when_its_time_has_come(bench: Bench) -> None:
    answer: Any = bench.groups.join(join_request(), bench.context(3))
    await bench.loop.advance(2.9)
    assert not answer.done()
    await bench.loop.advance(0.2)
    assert answer.result().generation_id == 1


@scenario
async def test_an_answer_that_nobody_waits_for_any_more_is_dropped(bench: Bench) -> None:
    answer: Any = bench.groups.join(join_request(), bench.context(3))
    answer.cancel()
    await bench.loop.advance(4)
    assert answer.cancelled()


@scenario
async def test_sessions_end_by_one_timer_of_the_loop(bench: Bench) -> None:
    member_id = await stable(bench)
    for _ in range(50):
        assert heartbeat(bench, member_id) is ErrorCode.NONE
        await bench.loop.advance(9.9)
        assert len(bench.loop.handles) == 1
    await bench.loop.advance(0.2)
    assert heartbeat(bench, member_id) is ErrorCode.UNKNOWN_MEMBER_ID


@scenario
async def test_a_commit_is_answered_when_the_log_has_it(bench: Bench) -> None:
    bench.log.is_held = True
    answer: Any = bench.groups.commit(commit_request(), bench.context())
    await settle()
    assert not answer.done() and committed(bench.groups) == {}
    bench.log.end()
    await settle()
    assert error_of(answer) is ErrorCode.NONE and committed(bench.groups) == {0: 7}


@scenario
async def test_appends_that_end_out_of_order_are_gone_on_with_in_the_logs_order(
    bench: Bench,
) -> None:
    bench.log.is_held = True
    first: Any = bench.groups.commit(commit_request(1), bench.context())
    second: Any = bench.groups.commit(commit_request(2), bench.context())
    bench.log.end(bench.log.held[1][0])
    await settle()
    assert not first.done() and not second.done()
    bench.log.is_held = False
    third: Any = bench.groups.commit(commit_request(3), bench.context())
    bench.log.end()
    await settle()
    assert first.done() and second.done() and third.done()
    assert committed(bench.groups) == {0: 3}


@scenario
async def test_a_stable_read_waits_for_what_is_being_stored(bench: Bench) -> None:
    bench.groups.commit(commit_request(1), bench.context())
    bench.log.is_held = True
    bench.groups.commit(commit_request(2), bench.context())
    bench.groups.commit(commit_request(3, partition=1), bench.context())
    request = OffsetFetchRequestGroup(group_id="g", topics=None)
    assert not bench.groups.unstored(["another"])
    task = asyncio.ensure_future(asyncio.wait(bench.groups.unstored(["g", "g", "another"])))
    bench.log.end()
    await settle()
    assert not task.done()
    assert committed(bench.groups) == {0: 2}
    bench.log.end()
    await task
    (topic,) = bench.groups.fetch(request, require_stable=False).topics
    offsets = {p.partition_index: p.committed_offset for p in topic.partitions}
    assert offsets == {0: 2, 1: 3}


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (DiskFailure(Path("x"), OSError(28, "full")), ErrorCode.NOT_COORDINATOR),
        (BatchTooLarge("large"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (Refusal(ErrorCode.NOT_ENOUGH_REPLICAS), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (Refusal(ErrorCode.POLICY_VIOLATION), ErrorCode.POLICY_VIOLATION),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (asyncio.CancelledError(), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value.name,
)
def test_a_log_that_fails_is_reported_in_the_coordinators_words(
    failure: BaseException, told: ErrorCode
) -> None:
    @scenario
    async def run(bench: Bench) -> None:
        bench.log.is_held = True
        answer: Any = bench.groups.commit(commit_request(), bench.context())
        future, _, _ = bench.log.held[0]
        if isinstance(failure, asyncio.CancelledError):
            future.cancel()
        else:
            future.set_exception(failure)
        await settle()
        assert error_of(answer) is told and committed(bench.groups) == {}

    run()


@scenario
async def test_a_name_too_long_for_the_log_is_refused(bench: Bench) -> None:
    answer = bench.groups.commit(commit_request(group="g" * 40_000), bench.context())
    assert error_of(answer) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.log.records == {}


@scenario
async def test_groups_and_offsets_are_there_again_after_a_restart(bench: Bench) -> None:
    member_id = await stable(bench)
    bench.groups.commit(commit_request(group="simple"), bench.context())
    bench.groups = bench.new_coordinator()
    await bench.groups.load()
    assert heartbeat(bench, member_id) is ErrorCode.NONE
    assert committed(bench.groups, "simple") == {0: 7}
    await bench.loop.advance(10.1)
    assert heartbeat(bench, member_id) is ErrorCode.UNKNOWN_MEMBER_ID


@scenario
async def test_expired_offsets_are_looked_for_again_and_again(bench: Bench) -> None:
    bench.groups.reconfigure(GroupConfig(offsets_retention_ms=60_000))
    for _ in range(3):
        bench.groups.commit(commit_request(), bench.context())
        assert committed(bench.groups) == {0: 7}
        bench.clock.at_ms += 60_000
        await bench.loop.advance(601)
        assert committed(bench.groups) == {}


@scenario
async def test_requests_are_answered_while_expired_offsets_are_looked_for(bench: Bench) -> None:
    bench.log.partition_count = 5
    bench.groups = bench.new_coordinator()
    await bench.groups.load()
    bench.groups.reconfigure(GroupConfig(offsets_retention_ms=60_000))
    names = [f"group{number}" for number in range(20)]
    for name in names:
        bench.groups.commit(commit_request(group=name), bench.context())
    bench.clock.at_ms += 60_000
    left = {20}

    def look() -> None:
        left.add(sum(committed(bench.groups, name) != {} for name in names))
        if 0 not in left:
            bench.loop.call_later(0.0005, look)

    bench.loop.call_later(599.99, look)
    await bench.loop.advance(601)
    assert 0 in left
    assert len(left) == 6, "a look between any two partitions"


@scenario
async def test_deleting_waits_for_the_tombstones(bench: Bench) -> None:
    bench.groups.commit(commit_request(), bench.context())
    bench.log.is_held = True
    answer: Any = bench.groups.delete("g")
    await settle()
    assert not answer.done()
    bench.log.end()
    await settle()
    assert answer.result() is ErrorCode.NONE
    assert bench.groups.delete("g") is ErrorCode.GROUP_ID_NOT_FOUND


@scenario
async def test_a_deleted_topic_is_forgotten_in_every_partition(bench: Bench) -> None:
    bench.log.partition_count = 5
    bench.groups = bench.new_coordinator()
    await bench.groups.load()
    names = [f"group{number}" for number in range(20)]
    for name in names:
        bench.groups.commit(commit_request(group=name), bench.context())
    assert len(bench.log.records) == 5
    bench.groups.topic_deleted("t", bytes(16))
    assert all(committed(bench.groups, name) == {} for name in names)


def test_before_it_is_loaded_a_group_is_not_spoken_for() -> None:
    async def body() -> None:
        bench = Bench()
        groups, context = bench.groups, bench.context()
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        join: Any = groups.join(join_request(member_id="m"), context)
        assert join.error_code == loading and join.member_id == "m"
        sync: Any = groups.sync(
            SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]), context
        )
        assert sync.error_code == loading
        leave: Any = groups.leave(
            LeaveGroupRequest(group_id="g", member_id="m", members=[]), context
        )
        assert leave.error_code == loading
        assert error_of(groups.commit(commit_request(), context)) is loading
        request = OffsetFetchRequestGroup(group_id="g", topics=None)
        fetch = groups.fetch(request, require_stable=False)
        assert fetch.error_code == loading
        assert groups.delete("g") is loading
        assert groups.describe("g", api_version=6).error_code == loading
        assert groups.list_groups((), ()) == (loading, [])
        # A member must not give up because the broker restarts.
        assert heartbeat(bench, "m") is ErrorCode.NONE

    asyncio.run(body())


def test_a_partition_that_cannot_be_read_is_not_coordinated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        bench = Bench()
        bench.log.replay_error = CorruptFile(Path("00.log"), 5, "bad CRC")
        await bench.groups.load()
        answer = bench.groups.commit(commit_request(), bench.context())
        assert error_of(answer) is ErrorCode.NOT_COORDINATOR
        assert bench.groups.list_groups((), ()) == (ErrorCode.NONE, [])

    asyncio.run(body())
    assert "bad CRC" in caplog.text


def test_a_partition_that_could_not_be_loaded_is_tried_again() -> None:
    async def body() -> None:
        bench = Bench()
        bench.log.replay_error = BucketFailure("the bucket is away")
        await bench.groups.load()
        await bench.loop.advance(30)
        (problem,) = bench.groups.runtime.problems()
        assert problem == (
            "partition 0 of groups could not be loaded, tries again: the bucket is away"
        )
        bench.log.replay_error = None
        await bench.loop.advance(60)
        assert not bench.groups.runtime.problems()
        answer = bench.groups.commit(commit_request(), bench.context())
        assert error_of(answer) is ErrorCode.NONE

    asyncio.run(body())


def test_records_that_are_not_ours_or_damaged_are_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        bench = Bench()
        await bench.groups.load()
        bench.groups.commit(commit_request(), bench.context())
        strange = [(b"\0\x7f\0\1g", b"\0\0"), (b"\0\1", b""), (b"", None)]
        bench.log.records[0].append(StoredBatch(strange))
        bench.groups = bench.new_coordinator()
        with caplog.at_level(logging.INFO):
            await bench.groups.load()
        assert committed(bench.groups) == {0: 7}

    asyncio.run(body())
    assert "records=4 ignored=1 damaged=2" in caplog.text


@scenario
async def test_closing_answers_everybody_and_stops_the_clock(bench: Bench) -> None:
    join: Any = bench.groups.join(join_request(), bench.context(3))
    bench.log.is_held = True
    commit: Any = bench.groups.commit(commit_request(group="other"), bench.context())
    bench.groups.close()
    assert join.result().error_code == ErrorCode.NOT_COORDINATOR
    later: Any = bench.groups.join(join_request(), bench.context())
    assert later.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    # What the log still takes is acknowledged as what it is.
    bench.log.is_held = False
    while bench.log.held:
        bench.log.end()
    await settle()
    assert error_of(commit) is ErrorCode.NONE
    assert [handle for handle in bench.loop.handles if not handle.is_cancelled] == []


def test_names_from_clients_cannot_forge_lines_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @scenario
    async def run(bench: Bench) -> None:
        request = join_request("g\nERROR forged")
        request.reason = "so\nERROR forged"
        context = bench.context(3)
        context.client_id = "client\nERROR forged"
        bench.groups.join(request, context)
        await bench.loop.advance(4)

    with caplog.at_level(logging.INFO):
        run()
    lines = [TextFormatter().format(record) for record in caplog.records]
    assert any("forged" in one for one in lines) and not any("\n" in one for one in lines)


def transactional_request(group: str = "g") -> TxnOffsetCommitRequest:
    one = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_metadata=None
    )
    return TxnOffsetCommitRequest(
        transactional_id="writer",
        group_id=group,
        producer_id=1,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[one])],
    )


def marker(*, is_commit: bool = True) -> Marker:
    return Marker(1, 0, 0, is_commit=is_commit, timestamp=0)


@scenario
async def test_offsets_of_a_transaction_count_at_its_end_and_after_a_restart(
    bench: Bench,
) -> None:
    context = bench.context(5)
    answer = bench.groups.commit_in_transaction(transactional_request(), context)
    assert error_of(answer) is ErrorCode.NONE
    assert committed(bench.groups) == {}
    bench.groups = bench.new_coordinator()
    await bench.groups.load()
    assert bench.groups.end_transaction(0, marker()) is ErrorCode.NONE
    assert committed(bench.groups) == {0: 7}
    bench.groups = bench.new_coordinator()
    await bench.groups.load()
    assert committed(bench.groups) == {0: 7}


@scenario
async def test_a_marker_is_written_behind_what_it_ends(bench: Bench) -> None:
    bench.log.is_held = True
    context = bench.context(5)
    commit: Any = bench.groups.commit_in_transaction(transactional_request(), context)
    ended: Any = bench.groups.end_transaction(0, marker())
    bench.log.end(bench.log.held[1][0])
    await settle()
    assert not ended.done()
    bench.log.end()
    await settle()
    assert error_of(commit) is ErrorCode.NONE and ended.result() is ErrorCode.NONE
    assert committed(bench.groups) == {0: 7}


@scenario
async def test_a_group_that_is_no_part_of_the_transaction_takes_no_offsets(bench: Bench) -> None:
    bench.groups.admit_to_transaction = lambda *_: ErrorCode.INVALID_TXN_STATE
    answer = bench.groups.commit_in_transaction(transactional_request(), bench.context(5))
    assert error_of(answer) is ErrorCode.INVALID_TXN_STATE
    assert bench.log.records == {}


@scenario
async def test_whether_a_group_is_part_of_the_transaction_is_asked_when_it_is_written(
    bench: Bench,
) -> None:
    asked: list[tuple[int, str, int]] = []
    added: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    answers: list[Any] = [added, ErrorCode.CONCURRENT_TRANSACTIONS, added, ErrorCode.NONE]

    def admit(partition: int, request: TxnOffsetCommitRequest, version: int) -> Any:
        asked.append((partition, request.transactional_id, version))
        return answers.pop(0)

    bench.groups.admit_to_transaction = admit
    outcomes = []
    for _ in range(2):
        answer: Any = bench.groups.commit_in_transaction(
            transactional_request(), bench.context(5)
        )
        waiting = asyncio.ensure_future(answer)
        await settle()
        assert waiting.done() == added.done()
        if not added.done():
            added.set_result(ErrorCode.NONE)
        outcomes.append(error_of(await waiting))
    assert outcomes == [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
    assert asked == [(0, "writer", 5)] * 4


async def test_while_groups_are_loaded_no_transaction_ends() -> None:
    bench = Bench()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.groups.end_transaction(0, marker()) is loading
    answer = bench.groups.commit_in_transaction(transactional_request(), bench.context(5))
    assert error_of(answer) is loading
    nameless = transactional_request(group="")
    answer = bench.groups.commit_in_transaction(nameless, bench.context(5))
    assert error_of(answer) is ErrorCode.INVALID_GROUP_ID


@scenario
async def test_deletions_of_offsets_are_replayed_in_their_place_among_commits(
    bench: Bench,
) -> None:
    context = bench.context()
    for group, partition, offset in (("g", 0, 1), ("h", 0, 2), ("g", 1, 3)):
        bench.groups.commit(commit_request(offset, group, partition), context)
    assert bench.groups.delete("g") is ErrorCode.NONE
    bench.groups.commit(commit_request(4, "g", 1), context)
    batches = [one for one in bench.log.records[0] if isinstance(one, StoredBatch)]
    # All in one batch, and each in its own.
    together = StoredBatch([record for batch in batches for record in batch.records])
    for stored in ([together], batches):
        bench.log.records[0] = list(stored)
        bench.groups = bench.new_coordinator()
        await bench.groups.load()
        assert (committed(bench.groups), committed(bench.groups, "h")) == ({1: 4}, {0: 2})
