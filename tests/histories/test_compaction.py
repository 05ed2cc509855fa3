"""Compacted topics: a cleaning that removes too much is found, one that may do so is not.

Values ending in the same digit modulo five have one key: p-0 and p-5 have k0.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.histories.checks.checker import check
from tests.histories.history import (
    Append,
    History,
    Outcome,
    Place,
    Read,
    Scan,
    Topic,
    Transaction,
)

HERE: Place = ("table", 0)
DONE, UNDONE, UNKNOWN = Outcome.DONE, Outcome.UNDONE, Outcome.UNKNOWN
RETENTION_S = 60.0


def append(
    value: str,
    offset: int,
    *,
    dead: bool = False,
    at: int = 1,
    time_s: float = 0.0,
    outcome: Outcome = DONE,
    transaction: Transaction | None = None,
) -> Append:
    """Make a batch of one record, a tombstone if it is dead."""
    return Append(
        "p", HERE, (value,), transaction=transaction, outcome=outcome, offset=offset,
        tombstones=frozenset([value] if dead else []), at=at, done_at=at + 1, time_s=time_s,
    )  # fmt: skip


def found(
    appends: Sequence[Append],
    *scans: Sequence[tuple[int, str]],
    times_s: Sequence[float] = (1.0,),
    bounds: tuple[int, int] = (0, 100),
) -> list[str]:
    """Return the kinds of problems of scans, one after the other; the last is the final read."""
    history = History({"table": Topic(True, True, RETENTION_S)}, list(appends))
    for number, (some, time_s) in enumerate(zip(scans, times_s, strict=True)):
        at = 1_000 * (number + 1)
        reads = [Read("r", HERE, offset, 0, value, True, at=at + 1) for offset, value in some]
        times = {"at": at, "done_at": at + 1, "time_s": time_s - 0.5, "done_s": time_s}
        history.reads += reads
        history.scans.append(Scan("r", HERE, *bounds, True, reads, **times))  # type: ignore[arg-type]
        history.final[HERE] = history.final_committed[HERE] = reads
    history.final_starts[HERE], history.final_ends[HERE] = bounds
    return [one.kind for one in check(history)]


VALUES = [append("p-0", 0), append("p-1", 1), append("p-5", 2)]


@pytest.mark.parametrize(
    ("records", "kinds"),
    [
        ([(0, "p-0"), (1, "p-1"), (2, "p-5")], []),
        ([(1, "p-1"), (2, "p-5")], []),
        ([(0, "p-0"), (1, "p-1")], ["latest"]),
        ([(1, "p-1")], ["latest"]),
        ([(2, "p-5")], ["latest"]),
        ([], ["latest", "latest"]),
    ],
)
def test_the_latest_value_of_each_key_stays(
    records: list[tuple[int, str]], kinds: list[str]
) -> None:
    assert found(VALUES, records) == kinds


@pytest.mark.parametrize(
    ("appends", "kinds"),
    [
        ([append("p-0", 0)], ["latest"]),
        ([append("p-0", 0, outcome=UNKNOWN)], []),
        ([append("p-0", -1)], ["latest"]),
        # It was sent after the reader had begun.
        ([append("p-0", 0, at=1_500)], []),
        # It is beyond the offset to which the reader has read.
        ([append("p-0", 100)], []),
        ([append("p-0", 0, transaction=Transaction("p", 0, 1, DONE))], ["latest"]),
        ([append("p-0", 0, transaction=Transaction("p", 0, 1, UNDONE))], []),
        ([append("p-0", 0, transaction=Transaction("p", 0, 1, UNKNOWN))], []),
    ],
)
def test_values_that_are_not_promised_may_be_missing(
    appends: list[Append], kinds: list[str]
) -> None:
    assert found(appends, []) == kinds


def test_records_before_the_log_start_may_be_missing() -> None:
    assert found([append("p-0", 7)], [], bounds=(7, 100)) == ["latest"]
    assert found([append("p-0", 7)], [], bounds=(8, 100)) == []
    assert found([append("p-0", -1)], [], bounds=(8, 100)) == []


@pytest.mark.parametrize(
    ("deletion", "time_s", "kinds"),
    [
        (append("p-5", 1, dead=True, time_s=10.0), 69.9, ["tombstones"]),
        (append("p-5", 1, dead=True, time_s=10.0), 70.0, []),
        # It may be there, and may have been cleaned as well.
        (append("p-5", -1, dead=True, time_s=10.0, outcome=UNKNOWN), 69.9, ["latest"]),
        (append("p-5", -1, dead=True, time_s=10.0, outcome=UNKNOWN), 70.0, []),
        (append("p-5", -1, dead=True, time_s=10.0, outcome=UNDONE), 70.0, ["latest"]),
        # It was there before the value.
        (append("p-5", 0, dead=True, time_s=-90.0), 70.0, ["latest"]),
        # It deletes another key.
        (append("p-6", 1, dead=True, time_s=10.0), 70.0, ["latest"]),
    ],
)
def test_tombstones_stay_for_their_time(
    deletion: Append, time_s: float, kinds: list[str]
) -> None:
    value = append("p-0", 0 if deletion.offset else 1)
    assert found([value, deletion], [], times_s=[time_s]) == kinds


def test_a_later_value_stands_for_a_tombstone() -> None:
    appends = [append("p-0", 0), append("p-5", 1, dead=True), append("p-10", 2)]
    assert found(appends, [(2, "p-10")]) == []
    assert found(appends, [(1, "p-5")]) == ["latest"]
    assert found(appends[:2], [(1, "p-5")]) == []


def test_a_slow_reader_may_keep_a_deleted_value_but_it_never_comes_back() -> None:
    appends = [append("p-0", 0), append("p-5", 1, dead=True), append("p-1", 2)]
    without, back = [(2, "p-1")], [(0, "p-0"), (2, "p-1")]
    assert found(appends, back, without, times_s=[90.0, 95.0]) == []
    assert "tombstones" in found(appends, without, back, times_s=[90.0, 95.0])


def test_records_that_readers_saw_may_be_cleaned() -> None:
    """A key whose tombstone has gone leaves nothing, and each of its records was read."""
    appends = [append("p-0", 0), append("p-5", 1, dead=True)]
    assert found(appends, [(0, "p-0"), (1, "p-5")], [], times_s=[1.0, 90.0]) == []
    for others in ([], [append("p-5", 1, dead=True, outcome=UNDONE)]):
        kinds = found([*appends[:1], *others], [(0, "p-0")], [], times_s=[1.0, 90.0])
        assert kinds == ["unstable", "latest"]
    # One that was there before deletes nothing later.
    before = [append("p-0", 0, dead=True), append("p-5", 1)]
    assert found(before, [(1, "p-5")], [], times_s=[1.0, 90.0]) == ["unstable", "latest"]
