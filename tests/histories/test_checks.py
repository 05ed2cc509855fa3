"""Each kind of problem is found by an example, and nothing in a sound history."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.histories.checks.checker import check
from tests.histories.history import (
    Append,
    CatalogChange,
    History,
    Led,
    OffsetCommit,
    OffsetFetch,
    Outcome,
    Place,
    Read,
    TopicChange,
    Transaction,
    View,
)

DONE, UNDONE, UNKNOWN = Outcome.DONE, Outcome.UNDONE, Outcome.UNKNOWN
HERE: Place = ("data", 0)
THERE: Place = ("data", 1)


def read(offset: int, value: str, place: Place = HERE, at: int = 100, epoch: int = 0) -> Read:
    return Read("r", place, offset, epoch, value, True, at=at)


def append(value: str, offset: int, place: Place = HERE, **others: object) -> Append:
    producer = value.rpartition("-")[0]
    outcome = others.pop("outcome", DONE)
    return Append(producer, place, (value,), outcome=outcome, offset=offset, **others)  # type: ignore[arg-type]


def history(
    appends: Sequence[Append], final: dict[Place, list[Read]], committed: object = None
) -> History:
    """Make a history whose last readers found some records."""
    made = History(appends=list(appends), final=final)
    made.final_committed = final if committed is None else committed  # type: ignore[assignment]
    return made


def transaction(outcome: Outcome, commit_at: int | None = 1) -> Transaction:
    return Transaction("t", 0, commit_at, outcome)


def sound() -> History:
    """Make a history with a little of everything."""
    of, open_one = transaction(DONE), transaction(UNKNOWN)
    appends = [
        append("i-0", 0),
        append("i-1", 1),
        append("p-0", -1, outcome=UNKNOWN, is_plain=True),
        append("t-0", 2, transaction=of),
        append("t-1", 0, THERE, transaction=of),
        append("t-2", 3, transaction=open_one),
    ]
    made = history(
        appends,
        {
            HERE: [read(0, "i-0"), read(1, "i-1"), read(2, "t-0"), read(3, "t-2")],
            THERE: [read(0, "t-1", THERE)],
        },
        {HERE: [read(0, "i-0"), read(1, "i-1"), read(2, "t-0")], THERE: [read(0, "t-1", THERE)]},
    )
    made.transactions = [of, open_one]
    made.reads = [read(1, "i-1"), read(2, "p-0", epoch=-1)]
    made.commits = [
        OffsetCommit("g", HERE, 1, outcome=DONE, at=9, done_at=10),
        OffsetCommit("g", HERE, 2, outcome=UNKNOWN, at=11),
        OffsetCommit("g", HERE, 3, outcome=DONE, at=19, done_at=20),
    ]
    made.fetches = [
        OffsetFetch("g", HERE, -1, at=5),
        OffsetFetch("g", HERE, 1, at=11),
        OffsetFetch("g", HERE, 3, at=21),
        OffsetFetch("g", HERE, 2, at=22),
    ]
    made.led = [Led(("id", 0), 0, 1), Led(("id", 0), 1, 2), Led(("id", 0), 1, 2)]
    made.catalog_changes = [CatalogChange(1, 1, True), CatalogChange(2, 2, True)]
    made.topic_changes = [
        TopicChange("create", "a", "id", outcome=DONE),
        TopicChange("partitions", "a", "id", 2, DONE),
        TopicChange("partitions", "a", "id", 3, UNKNOWN),
        TopicChange("setting", "a", "id", 7, DONE),
        TopicChange("create", "b", "gone", outcome=DONE),
        TopicChange("delete", "b", "gone", outcome=DONE),
    ]
    topic = {"partitions": 3, "setting": 7}
    made.views = {"one": View({"id": topic}, (1, 2)), "two": View({"id": topic}, (1, 2))}
    return made


def test_nothing_is_wrong_with_a_sound_history() -> None:
    assert check(sound()) == []


Spoil = Callable[[History], object]


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda h: h.final[HERE].pop(0), "lost: i-0"),
        (lambda h: h.final_committed[THERE].pop(), "lost: t-1"),
        (lambda h: h.final[THERE].append(read(1, "i-9", THERE)), "twice: i-9"),
        (lambda h: h.final[HERE].append(read(4, "i-0")), "twice: i-0"),
        (lambda h: h.final[HERE].reverse(), "order: i-0"),
        (lambda h: h.final[HERE].reverse(), "offsets: ('data', 0) has 2 after 3"),
        (lambda h: setattr(h.appends[1], "offset", 7), "offsets: i-1"),
        (lambda h: h.reads.append(read(1, "i-0")), "offsets: ('data', 0) at 1"),
        (lambda h: setattr(h.transactions[0], "outcome", UNDONE), "aborted: r read t-0"),
        (lambda h: setattr(h.transactions[0], "commit_at", None), "aborted: r read t-0"),
        (lambda h: h.reads.append(read(2, "t-0", at=0)), "aborted: r read t-0"),
        (lambda h: _read_some_of(h), "atomic: transaction"),
        (lambda h: h.fetches.append(OffsetFetch("g", HERE, 1, at=30)), "group: g found 1"),
        (lambda h: h.fetches.append(OffsetFetch("g", HERE, -1, at=30)), "group: g found -1"),
        (lambda h: h.fetches.append(OffsetFetch("g", HERE, 9, at=30)), "group: g found 9"),
        (lambda h: h.fetches.append(OffsetFetch("g", THERE, 0, at=30)), "group: g found 0"),
        (lambda h: h.led.append(Led(("id", 0), 1, 1)), "leaders: ('id', 0) in epoch 1"),
        (lambda h: h.catalog_changes.append(CatalogChange(3, 1, False)), "sessions: broker 1"),
        (lambda h: h.catalog_changes.append(CatalogChange(2, 1, True)), "sessions: change 2"),
        (lambda h: h.views.update(two=View({}, (1, 2))), "metadata: topic id"),
        (lambda h: h.views.update(two=View(h.views["one"].topics, (1,))), "metadata: one knows"),
        (lambda h: h.topic_changes.append(_changed("c", "lost", "create")), "metadata: c was"),
        (lambda h: h.topic_changes.append(_changed("a", "id", "delete")), "metadata: a was"),
        (lambda h: h.topic_changes.append(_changed("a", "id", "setting", 8)), "metadata: a: set"),
        (lambda h: h.topic_changes.append(_changed("a", "id", "partitions", 4)), "metadata: a: p"),
        (lambda h: h.troubles.append("stuck"), "stuck"),
    ],
)
def test_a_problem_is_found(spoil: Spoil, problem: str) -> None:
    spoiled = sound()
    spoil(spoiled)
    found = [str(one) for one in check(spoiled)]
    assert any(one.startswith(problem) for one in found), found


def _changed(topic: str, topic_id: str, kind: str, value: int = 0) -> TopicChange:
    return TopicChange(kind, topic, topic_id, value, DONE)


def _read_some_of(spoiled: History) -> None:
    """Let a transaction without an answer be there in part."""
    of = spoiled.transactions[1]
    spoiled.appends.append(append("t-3", 1, THERE, transaction=of))
    spoiled.final[THERE].append(read(1, "t-3", THERE))
    of.commit_at = 1
    spoiled.final_committed[HERE].append(read(3, "t-2"))


def test_offsets_of_an_aborted_transaction_are_never_found() -> None:
    made = sound()
    made.commits.append(OffsetCommit("g", HERE, 5, transaction(UNDONE), DONE))
    made.fetches.append(OffsetFetch("g", HERE, 5, at=40))
    assert [str(one)[:16] for one in check(made)] == ["group: g found 5"]


def test_a_run_that_did_not_come_to_its_end_has_lost_nothing() -> None:
    made = sound()
    made.final, made.final_committed, made.views = {}, {}, {}
    assert check(made) == []
