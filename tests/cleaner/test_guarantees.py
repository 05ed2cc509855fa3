"""The four guarantees as decisions over records, and over logs that were really cleaned."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.cleaner.proof.guarantees import (
    FINAL_STATE,
    HEAD_UNCHANGED,
    OFFSETS_UNCHANGED,
    ORDER_UNCHANGED,
    Bounds,
    Finding,
    Seen,
    compare,
    final_state,
)
from odradek.cleaner.proof.snapshot import take_snapshot
from odradek.cleaner.runtime.verification import bounds_of, prove_guarantees, prove_run
from odradek.protocol.batches import Record
from tests.cleaner.histories import HISTORIES, Author, Clean, Roll, Step
from tests.cleaner.worlds import EAGER, FS, World, pairs

NOW_MS = 10_000
# Six records, of which those up to offset 3 were dirty and could be cleaned.
BOUNDS = Bounds(
    start_offset=0,
    stable_offset=6,
    end_offset=6,
    first_dirty_offset=2,
    first_uncleanable_offset=4,
    min_lag_ms=0,
    now_ms=NOW_MS,
)
EXPIRED, COMING = NOW_MS, NOW_MS + 1


def seen(
    offset: int, key: bytes | None, value: bytes | None, *, horizon: int | None = None
) -> Seen:
    return Seen(Record(offset, 1_000 + offset, key, value), True, horizon)


BEFORE = [
    seen(0, b"a", b"1"),
    seen(1, b"b", b"1"),
    seen(2, b"a", b"2"),
    seen(3, b"c", b"1"),
    seen(4, b"c", b"2"),
    seen(5, b"d", None),
]
AFTER = [BEFORE[1], BEFORE[2], *BEFORE[4:]]


def broken(
    before: Sequence[Seen], after: Sequence[Seen], bounds: Bounds = BOUNDS, keys_max: int = 100
) -> dict[str, tuple[int, bytes | None]]:
    """Return where each guarantee is broken first."""
    findings: list[Finding] = compare(before, after, bounds)
    findings.append(final_state(lambda: before, lambda: after, bounds, keys_max))
    return {
        one.name: (one.violation.offset, one.violation.key)
        for one in findings
        if one.violation is not None
    }


def changed(at: int, one: Seen) -> list[Seen]:
    return [*AFTER[:at], one, *AFTER[at + 1 :]]


@pytest.mark.parametrize("keys_max", [1, 2, 100])
def test_a_correct_compaction_breaks_no_guarantee(keys_max: int) -> None:
    assert broken(BEFORE, AFTER, keys_max=keys_max) == {}
    assert broken(BEFORE, BEFORE, keys_max=keys_max) == {}
    assert broken([], [], keys_max=keys_max) == {}


def test_each_finding_says_how_much_was_looked_at() -> None:
    head, order, offsets = compare(BEFORE, AFTER, BOUNDS)
    # Two are gone, two lie past the first uncleanable offset.
    assert [one.examined for one in (head, order, offsets)] == [4, 4, 4]
    assert final_state(lambda: BEFORE, lambda: AFTER, BOUNDS).examined == 4


def test_nothing_past_the_first_uncleanable_offset_may_go() -> None:
    found = broken(BEFORE, [one for one in AFTER if one.record.offset != 4])
    assert found[HEAD_UNCHANGED] == (4, b"c")
    found = broken(BEFORE, changed(2, seen(4, b"c", b"3")))
    assert found[HEAD_UNCHANGED] == found[OFFSETS_UNCHANGED] == (4, b"c")
    found = broken(BEFORE, changed(3, seen(5, b"d", None, horizon=COMING)))
    assert found == {HEAD_UNCHANGED: (5, b"d")}


def test_nothing_dirty_may_go_before_it_is_as_old_as_the_lag() -> None:
    at_ms = BEFORE[3].record.timestamp
    for lag_ms, is_fine in ((NOW_MS - at_ms, True), (NOW_MS - at_ms + 1, False)):
        found = broken(BEFORE, AFTER, replace(BOUNDS, min_lag_ms=lag_ms))
        assert found == ({} if is_fine else {HEAD_UNCHANGED: (3, b"c")})


def test_clean_records_may_go_at_any_age() -> None:
    bounds = replace(BOUNDS, min_lag_ms=NOW_MS)
    assert broken(BEFORE, BEFORE[1:], replace(bounds, first_dirty_offset=1)) == {}


def test_order_and_offsets_never_change() -> None:
    swapped = [AFTER[1], AFTER[0], *AFTER[2:]]
    assert broken(BEFORE, swapped)[ORDER_UNCHANGED] == (1, b"b")
    assert broken(BEFORE, [*AFTER, AFTER[-1]])[ORDER_UNCHANGED] == (5, b"d")
    moved = changed(0, seen(0, b"b", b"1"))
    assert broken(BEFORE, moved)[OFFSETS_UNCHANGED] == (0, b"a")
    assert broken(AFTER, [seen(0, b"b", b"1"), *AFTER])[OFFSETS_UNCHANGED] == (0, b"b")


@pytest.mark.parametrize(
    "change",
    [
        {"value": b"2"},
        {"value": None},
        {"key": b"x"},
        {"timestamp": 1},
        {"headers": (("h", b""),)},
    ],
    ids=str,
)
def test_a_changed_record_breaks_a_guarantee(change: dict[str, object]) -> None:
    record = replace(BEFORE[1].record, **change)  # type: ignore[arg-type]
    assert broken(BEFORE, changed(0, Seen(record, True)))[OFFSETS_UNCHANGED] == (1, b"b")


def test_the_visibility_of_a_record_stays_once_it_is_decided() -> None:
    aborted = replace(BEFORE[1], is_committed=False)
    assert broken(BEFORE, changed(0, aborted))[OFFSETS_UNCHANGED] == (1, b"b")
    undecided = replace(BOUNDS, stable_offset=5)
    assert broken(BEFORE, changed(3, replace(BEFORE[5], is_committed=False)), undecided) == {}


@pytest.mark.parametrize("keys_max", [1, 100])
def test_the_latest_record_of_each_key_stays(keys_max: int) -> None:
    found = broken(BEFORE, [one for one in AFTER if one.record.key != b"b"], keys_max=keys_max)
    assert found == {FINAL_STATE: (1, b"b")}
    # The older value in its place is no better.
    found = broken(BEFORE, [BEFORE[0], BEFORE[1], *BEFORE[3:]], keys_max=keys_max)
    assert found == {FINAL_STATE: (2, b"a")}


def test_long_keys_are_proved_in_little_memory() -> None:
    size_bytes, count = 1 << 20, 40

    def log() -> Iterator[Seen]:
        return (seen(at, b"%7d" % at * (size_bytes // 7), b"1") for at in range(count))

    bounds = replace(BOUNDS, stable_offset=count, end_offset=count)
    tracemalloc.start()
    whole = final_state(log, log, bounds)
    lacking = final_state(log, lambda: (one for one in log() if one.record.offset != 7), bounds)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert whole.violation is None and whole.examined == count
    assert lacking.violation is not None and lacking.violation.offset == 7
    assert lacking.violation.key is None  # it was too long to be kept
    assert peak_bytes < count * size_bytes // 4


@pytest.mark.parametrize("horizon", [None, COMING, EXPIRED])
def test_a_tombstone_goes_when_its_horizon_has_passed_and_not_before(horizon: int | None) -> None:
    before = [seen(0, b"a", None, horizon=horizon), *BEFORE[3:]]
    found = broken(before, BEFORE[3:])
    assert found == ({} if horizon == EXPIRED else {FINAL_STATE: (0, b"a")})


def test_a_tombstone_goes_only_after_what_it_deleted() -> None:
    before = [BEFORE[1], seen(3, b"b", None, horizon=EXPIRED)]
    assert broken(before, before[:1]) == {FINAL_STATE: (3, b"b")}
    assert broken(before, []) == {}


def test_aborted_records_are_nobodys_final_state() -> None:
    aborted = Seen(Record(3, 1, b"b", b"9"), False)
    assert broken([BEFORE[1], aborted], [BEFORE[1]]) == {}
    assert broken([BEFORE[1], aborted], [aborted]) == {FINAL_STATE: (1, b"b")}


def test_records_without_a_key_may_go() -> None:
    assert broken([seen(0, None, b"1"), *BEFORE[3:]], BEFORE[3:]) == {}


def test_records_that_were_deleted_or_appended_meanwhile_are_left_out() -> None:
    bounds = replace(BOUNDS, start_offset=3)
    assert broken(BEFORE, [*BEFORE[3:], seen(6, b"c", b"9"), seen(7, b"e", b"1")], bounds) == {}


# --- over real cleanings ----------------------------------------------------------------------


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(HISTORIES, st.sampled_from([1, 600, 1 << 20]), st.sampled_from([0, 60]))
def test_every_cleaning_of_a_history_keeps_the_guarantees(
    steps: list[Step], segment_bytes: int, lag_ms: int
) -> None:
    memory = Path("/dev/shm")
    config = replace(EAGER, internal_segment_bytes=segment_bytes, min_compaction_lag_ms=lag_ms)
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        world = World(Path(path), config)
        author = Author(world)
        for step in [*steps, Roll(), Clean(0)]:
            if not isinstance(step, Clean):
                author.write(step)
                continue
            author.end_all()
            world.now_ms += step.after_ms
            before = take_snapshot(world.log)
            result = world.clean()
            if result is None:
                continue
            after = take_snapshot(world.log)
            findings = prove_run(
                before,
                after,
                bounds_of(before, after, result, lag_ms),
                result.end_offset,
                FS,
                lambda size: None,
            )
            assert [one.violation for one in findings] == [None] * 8


def test_records_from_before_can_be_read_when_their_files_are_gone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(pairs("a:1 a:2 b:1"))
    world.roll()
    before = take_snapshot(world.log)
    result = world.clean()
    assert result is not None
    after = take_snapshot(world.log)
    bounds = bounds_of(before, after, result, 0)
    assert [s.record.value for s in before.seen(lambda size: None)] == [b"1", b"2", b"1"]
    assert [s.record.value for s in after.seen(lambda size: None)] == [b"2", b"1"]
    findings = prove_guarantees(before, after, bounds, lambda size: None)
    assert all(one.violation is None for one in findings)
