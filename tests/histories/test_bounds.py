"""Near cases of other promises: for each, a history that is refused, and one that is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.histories.checks.checker import check
from tests.histories.checks.problem import Problem
from tests.histories.history import (
    LOCAL,
    SHARED,
    Acknowledgement,
    Append,
    Deletion,
    Event,
    History,
    OffsetCommit,
    OffsetFetch,
    Outcome,
    Place,
    Read,
    ShareAck,
    ShareDelivery,
    Start,
    Topic,
    TopicChange,
    Transaction,
    View,
    Watermark,
)

HERE: Place = ("data", 0)
DONE, UNDONE, UNKNOWN = Outcome.DONE, Outcome.UNDONE, Outcome.UNKNOWN
ACCEPT, RELEASE, REJECT = Acknowledgement
RETAINED = Topic(is_retained=True)


def found(events: Sequence[Event], topic: Topic = LOCAL, **ends: Any) -> list[str]:
    """Return the kinds of problems of events."""
    history = History({"data": topic}, **ends)
    for one in events:
        history.add(one)
    return [one.kind for one in check(history)]


def watermark(
    offset: int, epoch: int, at: int, done_at: int, node_id: int = -1, client: str = "r"
) -> Watermark:
    return Watermark(client, HERE, epoch, offset, node_id, at=at, done_at=done_at)


@pytest.mark.parametrize(
    ("first", "second", "of_local", "of_shared"),
    [
        (watermark(5, 0, 1, 2), watermark(5, 0, 3, 4), 0, 0),
        (watermark(5, 0, 1, 2), watermark(4, 0, 3, 4), 1, 1),
        # They overlap.
        (watermark(5, 0, 1, 3), watermark(4, 0, 2, 4), 0, 0),
        (watermark(5, 0, 1, 4), watermark(4, 0, 2, 3), 0, 0),
        # A local log may lose its end.
        (watermark(5, 0, 1, 2), watermark(4, 1, 3, 4), 0, 1),
        (watermark(5, 0, 1, 2), watermark(5, 1, 3, 4), 0, 0),
        # One that has another leader already answers late.
        (watermark(5, 1, 1, 2), watermark(4, 0, 3, 4), 0, 0),
        # It cannot have gone on when the next epoch had begun.
        (watermark(5, 1, 1, 2), watermark(6, 0, 3, 4), 0, 1),
        # A reader without epochs reads on from leader to leader; another one may be behind it.
        (watermark(5, -1, 1, 2), watermark(4, -1, 3, 4), 0, 1),
        (watermark(5, -1, 1, 2), watermark(5, -1, 3, 4), 0, 0),
        (watermark(5, -1, 1, 3), watermark(4, -1, 2, 4), 0, 0),
        (watermark(5, -1, 1, 2), watermark(4, -1, 3, 4, client="s"), 0, 0),
        (watermark(5, -1, 1, 2, node_id=2), watermark(4, -1, 3, 4, node_id=2), 0, 0),
        # A broker near the reader hears later of it.
        (watermark(5, 0, 1, 2), watermark(4, 0, 3, 4, node_id=2), 0, 0),
        (watermark(5, 0, 1, 2, node_id=2), watermark(4, 0, 3, 4, node_id=2), 1, 1),
        (watermark(5, 0, 1, 2, node_id=0), watermark(4, 1, 3, 4, node_id=0), 0, 0),
    ],
)
def test_high_watermarks_go_on(
    first: Watermark, second: Watermark, of_local: int, of_shared: int
) -> None:
    assert found([first, second]) == ["watermark"] * of_local
    assert found([first, second], SHARED) == ["watermark"] * of_shared


def commit(
    offset: int, at: int, done_at: int | None, *, position: bool = False
) -> OffsetCommit:
    outcome = UNKNOWN if done_at is None else DONE
    times = {"at": at, "done_at": done_at}
    return OffsetCommit("g", HERE, offset, None, outcome, position, **times)  # type: ignore[arg-type]


def fetch(offset: int, at: int = 100) -> OffsetFetch:
    return OffsetFetch("g", HERE, offset, at=at)


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        ([commit(5, 1, 2), fetch(5)], []),
        ([commit(5, 1, 2), fetch(-1)], ["group"]),
        ([commit(5, 1, 2), fetch(-1, at=2)], []),
        ([commit(5, 1, 2), commit(7, 3, 4), fetch(5)], ["group"]),
        ([commit(5, 1, 3), commit(7, 2, 4), fetch(5)], []),
        ([commit(5, 1, 4), commit(7, 2, 3), fetch(5)], []),
        ([commit(5, 1, 4), commit(7, 2, 3), commit(9, 5, 6), fetch(7)], ["group"]),
        ([commit(5, 1, 2), commit(3, 3, 4), fetch(3)], []),
        ([commit(5, 1, None), commit(7, 2, 3), fetch(5)], []),
        ([commit(5, 1, 2), fetch(6)], ["group"]),
        # Fetches are noted when they end.
        ([commit(5, 1, 2), commit(7, 10, 12), fetch(7, 13), fetch(5, 11)], []),
    ],
)
def test_committed_offsets_stay(events: list[Event], kinds: list[str]) -> None:
    assert found(events) == kinds


@pytest.mark.parametrize(
    ("of_commit", "of_transaction", "found_offset", "kinds"),
    [
        (DONE, DONE, 5, []),
        (DONE, DONE, -1, ["group"]),
        (DONE, UNDONE, 5, ["group"]),
        (DONE, UNDONE, -1, []),
        (DONE, UNKNOWN, 5, []),
        (DONE, UNKNOWN, -1, []),
        (UNKNOWN, DONE, 5, []),
        (UNKNOWN, DONE, -1, []),
        (UNDONE, DONE, 5, ["group"]),
        (UNDONE, DONE, -1, []),
    ],
)
def test_a_committed_offset_shares_the_fate_of_its_transaction(
    of_commit: Outcome, of_transaction: Outcome, found_offset: int, kinds: list[str]
) -> None:
    transaction = Transaction("p", 0, 1, of_transaction)
    one = OffsetCommit("g", HERE, 5, transaction, of_commit, at=1, done_at=2)
    assert found([one, fetch(found_offset)]) == kinds


def test_positions_are_within_the_log() -> None:
    ends = {HERE: 5}
    beyond, within = commit(6, 1, 2, position=True), commit(5, 1, 2, position=True)
    assert found([beyond], SHARED, final_ends=ends) == ["group"]
    assert found([within], SHARED, final_ends=ends) == []
    # Any number may be committed; a local log may lose its end; this run did not come to its end.
    assert found([commit(6, 1, 2)], SHARED, final_ends=ends) == []
    assert found([beyond], LOCAL, final_ends=ends) == []
    assert found([beyond], SHARED) == []


def ack(
    kind: Acknowledgement, at: int, outcome: Outcome = DONE, member: str = "m", group: str = "g"
) -> ShareAck:
    return ShareAck(group, member, HERE, 3, 5, kind, outcome, at=at, done_at=at + 1)


def delivery(offset: int, at: int, group: str = "g") -> ShareDelivery:
    return ShareDelivery(group, "m", HERE, offset, f"p-{offset}", at=at)


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([ack(ACCEPT, 1), ack(ACCEPT, 3, member="n")], 3),
        ([ack(ACCEPT, 1), ack(ACCEPT, 3)], 3),
        ([ack(REJECT, 1), ack(ACCEPT, 3)], 3),
        ([ack(RELEASE, 1), ack(ACCEPT, 3)], 0),
        ([ack(ACCEPT, 1), ack(ACCEPT, 3, UNDONE)], 0),
        ([ack(ACCEPT, 1), ack(ACCEPT, 3, UNKNOWN)], 0),
        ([ack(ACCEPT, 1), ack(ACCEPT, 3, group="other")], 0),
        ([ack(ACCEPT, 1), delivery(4, 3)], 1),
        ([ack(ACCEPT, 1), delivery(4, 2)], 0),
        ([ack(ACCEPT, 1), delivery(6, 3)], 0),
        ([ack(ACCEPT, 1), delivery(4, 3, "other")], 0),
        ([ack(RELEASE, 1), delivery(4, 3)], 0),
        ([ack(ACCEPT, 1, UNKNOWN), delivery(4, 3)], 0),
    ],
)
def test_records_are_settled_once(events: list[Event], count: int) -> None:
    assert found(events) == ["shares"] * count


def sent(value: str, offset: int = -1, **others: Any) -> Append:
    return Append("p", HERE, (value,), offset=offset, **others)


def read(offset: int, value: str, reader: str = "r", epoch: int = 0) -> Read:
    return Read(reader, HERE, offset, epoch, value, False)


@pytest.mark.parametrize(
    ("events", "of_local", "of_shared"),
    [
        # Without a final read: readers met a record twice.
        ([sent("p-0"), read(0, "p-0"), read(0, "p-0")], [], []),
        ([sent("p-0"), read(0, "p-0"), read(1, "p-0", "s")], ["twice"], ["twice"]),
        ([sent("p-0"), read(0, "p-0"), read(1, "p-0", "s", epoch=1)], [], ["twice"]),
        (
            [sent("p-0", is_plain=True, is_repeated=True), read(0, "p-0"), read(1, "p-0", "s")],
            [], [],
        ),
        ([read(0, "p-0")], ["twice"], ["twice"]),
        # In the wrong order, by one reader that did not go back.
        ([sent("p-0"), sent("p-1"), read(0, "p-1"), read(1, "p-0")], ["order"], ["order"]),
        ([sent("p-0"), sent("p-1"), read(1, "p-1"), read(0, "p-0")], [], []),
        ([sent("p-0"), sent("p-1"), read(0, "p-1"), read(1, "p-0", epoch=1)], [], ["order"]),
        (
            [sent("p-0", is_plain=True), sent("p-1", is_plain=True), read(0, "p-1"),
             read(1, "p-0")],
            [], [],
        ),
        # Two records at one offset.
        ([sent("p-0"), sent("p-1"), read(0, "p-0"), read(0, "p-1")], ["offsets"], ["unstable"]),
        ([sent("p-0"), sent("p-1"), read(0, "p-0"), read(0, "p-1", epoch=1)], [], ["unstable"]),
    ],
)  # fmt: skip
def test_readers_see_one_log(
    events: list[Event], of_local: list[str], of_shared: list[str]
) -> None:
    assert found(events) == of_local
    assert found(events, SHARED) == of_shared


@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_only_records_of_transactions_may_be_read_before_they_are_aborted(
    is_compacted: bool, is_committed: bool, is_transactional: bool
) -> None:
    """They are cleaned then; others that were read are committed."""
    transaction = Transaction("p", 0, 1, UNKNOWN) if is_transactional else None
    events = [sent("p-0", 0, transaction=transaction), read(0, "p-0")]
    history = History({"data": Topic(True, is_compacted)}, final={HERE: []})
    history.final_committed = {HERE: []}
    for one in events:
        history.add(one)
    history.reads[0].is_committed = is_committed
    may_be = is_compacted and is_transactional and not is_committed
    assert [one.kind for one in check(history)] == ([] if may_be else ["unstable"])


@pytest.mark.parametrize(("offset", "kinds"), [(0, ["offsets"]), (1, []), (-1, [])])
def test_records_are_where_their_producers_were_answered(offset: int, kinds: list[str]) -> None:
    there = {HERE: [read(1, "p-0")]}
    ends: dict[str, Any] = {"final": there, "final_committed": there}
    assert found([sent("p-0", offset, outcome=DONE)], **ends) == kinds


def test_an_offset_has_one_record() -> None:
    events = [sent("p-0"), sent("p-1")]
    for offset, kinds in ((1, []), (0, ["offsets"])):
        there = {HERE: [read(0, "p-0"), read(offset, "p-1", epoch=1)]}
        assert found(events, final=there, final_committed=there) == kinds


def changed(kind: str, outcome: Outcome, value: int = 0) -> TopicChange:
    return TopicChange(kind, "a", "id", value, outcome)


@pytest.mark.parametrize(
    ("changes", "partitions", "kinds"),
    [
        ([changed("create", DONE)], None, ["metadata"]),
        ([changed("create", DONE), changed("delete", UNKNOWN)], None, []),
        ([changed("create", UNKNOWN)], None, []),
        ([changed("create", DONE), changed("partitions", DONE, 2)], 2, []),
        ([changed("create", DONE), changed("partitions", DONE, 2)], 1, ["metadata"]),
        ([changed("partitions", DONE, 2), changed("partitions", UNKNOWN, 1)], 1, ["metadata"]),
        ([changed("partitions", DONE, 2), changed("partitions", UNKNOWN, 3)], 3, []),
    ],
)
def test_topics_are_as_they_were_changed(
    changes: list[Event], partitions: int | None, kinds: list[str]
) -> None:
    topics = {} if partitions is None else {"id": {"partitions": partitions, "setting": 0}}
    assert found(changes, views={"one": View(topics, ())}) == kinds


def test_a_problem_is_there_once_its_last_event_has_ended() -> None:
    first, second = commit(5, 1, 8), fetch(-1, at=9)
    assert Problem("group", "", events=(first, second)).at == 9
    assert Problem("group", "", events=(first,)).at == 8
    assert Problem("stuck", "").at == 0


def test_logs_begin_where_deletions_ask() -> None:
    start, deletion = Start(HERE, 7), Deletion(HERE, 7)
    assert found([start]) == ["start"]
    assert found([start, Deletion(HERE, 6)]) == ["start"]
    assert found([start, deletion]) == []
    assert found([start], RETAINED) == []


def test_a_record_that_retention_removed_is_not_lost() -> None:
    event = sent("p-0", 3, outcome=DONE)
    ends: dict[str, Any] = {"final": {HERE: []}, "final_committed": {HERE: []}}
    assert found([event], RETAINED, **ends, final_starts={HERE: 3}) == ["lost"]
    assert found([event], RETAINED, **ends, final_starts={HERE: 4}) == []
    event.offset = 0
    assert found([event], RETAINED, **ends, final_starts={HERE: 0}) == ["lost"]
    assert found([event], RETAINED, **ends, final_starts={HERE: 1}) == []


def test_records_that_were_deleted_stay_so() -> None:
    deletion = Deletion(HERE, 7, DONE)
    assert found([deletion], final_starts={HERE: 6}) == ["start"]
    assert found([deletion], final_starts={HERE: 7}) == []
    assert found([Deletion(HERE, 7)], final_starts={HERE: 6}) == []


def test_a_topic_may_bring_deleted_records_back() -> None:
    forgetful, promise = Topic(keeps_deletions=False), Start(HERE, 7, is_promise=True)
    some = [Deletion(HERE, 7, DONE), promise]
    assert found(some, forgetful, final_starts={HERE: 6}) == []
    assert found(some, final_starts={HERE: 6}) == ["start", "start"]
    assert found([promise], forgetful) == ["start"]  # nobody has asked for it
