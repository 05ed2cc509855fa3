"""A cleaning of the dirty section alone, where that pays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cleaner.passes.stats import report
from odradek.cleaner.rules.policy import Bound, DirtyRange, Reason, pays_alone
from odradek.cleaner.runtime.progress import Horizons
from tests.cleaner.histories import HISTORIES, Author, Clean, Data, Roll, Step
from tests.cleaner.once import SETTINGS
from tests.cleaner.test_clean_model import new_world, state_of
from tests.cleaner.worlds import EAGER, World

ALONE = replace(SETTINGS, may_clean_alone=True)
CONFIG = replace(EAGER, min_cleanable_dirty_ratio=0.5)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A log with 50 old keys, which is clean, and many updates of two keys since."""
    made = World(tmp_path, CONFIG)
    made.append([(b"k%d" % at, b"old" * 100) for at in range(50)])
    made.roll()
    made.log.config = replace(CONFIG, min_cleanable_dirty_ratio=0.0)
    assert made.clean(ALONE) is not None
    made.log.config = CONFIG
    for at in range(100):
        made.append([(b"k%d" % (at % 2), b"%03d" % at * 100)])
    made.roll()
    yield made


def offsets(world: World) -> list[int]:
    return [record.offset for record in world.records()]


def test_the_clean_section_stays_as_it_is(world: World) -> None:
    before = world.log.segments[0].log.read(0, world.log.segments[0].size_bytes)
    result = world.clean(ALONE)
    assert result is not None and result.is_alone and not result.is_partial
    assert "alone" in report(result, 0)
    assert (result.first_dirty_offset, result.end_offset, world.checkpoint) == (50, 50, 50)
    assert offsets(world) == [*range(50), 148, 149]
    assert world.log.segments[0].log.read(0, len(before)) == before
    assert result.written_bytes < 2000
    # The ratio asks again much later, and a complete run removes the old values then.
    assert world.clean(ALONE) is None
    world.log.config = replace(CONFIG, min_cleanable_dirty_ratio=0.0)
    complete = world.clean(ALONE)
    assert complete is not None and not complete.is_alone
    assert offsets(world) == [*range(2, 50), 148, 149]
    assert world.checkpoint == 150


def test_a_tombstone_stays_until_a_complete_run_has_removed_its_value(world: World) -> None:
    horizons: Horizons = {(world.log.topic, world.log.partition): None}
    for at in range(100):
        world.append([(b"k9", None if at == 99 else b"v" * 300)])
    world.roll()
    result = world.clean(ALONE, horizons)
    assert result is not None and result.is_alone
    assert horizons[world.log.topic, world.log.partition] is None
    (tombstone,) = [batch for batch in world.batches() if batch.records[-1].value is None]
    assert not tombstone.header.has_delete_horizon
    world.now_ms += 10 * CONFIG.delete_retention_ms
    assert world.clean(ALONE, horizons) is None
    assert b"k9" not in state_of(world)
    world.log.config = replace(CONFIG, min_cleanable_dirty_ratio=0.0)
    assert world.clean(ALONE, horizons) is not None
    (tombstone,) = [batch for batch in world.batches() if batch.records[-1].value is None]
    assert tombstone.header.has_delete_horizon


def test_the_greatest_lag_makes_a_run_complete(world: World) -> None:
    world.now_ms += 2000
    world.log.config = replace(CONFIG, max_compaction_lag_ms=1000)
    result = world.clean(ALONE)
    assert result is not None and result.reason is Reason.OVERDUE
    assert not result.is_alone
    assert offsets(world) == [*range(2, 50), 148, 149]


def test_transactions_make_a_run_complete(world: World) -> None:
    world.append([(b"k1", b"v")], producer=(7, 0, 0), transactional=True)
    world.append_marker(7, 0, commit=True)
    world.roll()
    result = world.clean(ALONE)
    assert result is not None and not result.is_alone


def test_a_run_is_complete_if_much_of_the_dirty_section_stays(world: World) -> None:
    world.append([(b"new%d" % at, b"v" * 300) for at in range(30)])
    world.roll()
    result = world.clean(ALONE)
    assert result is not None and not result.is_alone


@pytest.mark.slow
@given(HISTORIES, st.sampled_from([1, 600, 1 << 20]), st.sampled_from([0.1, 0.5]))
def test_no_value_is_lost_and_none_comes_back(
    steps: list[Step], segment_bytes: int, ratio: float
) -> None:
    plain = [s for s in steps if not isinstance(s, Data) or (s.producer or 0) < 3]
    with new_world(segment_bytes) as cleaned, new_world() as untouched:
        cleaned.log.config = replace(cleaned.log.config, min_cleanable_dirty_ratio=ratio)
        authors = Author(cleaned), Author(untouched)
        for step in [*plain, Roll(), Clean(0)]:
            if not isinstance(step, Clean):
                for author in authors:
                    author.write(step)
                continue
            cleaned.now_ms += step.after_ms
            untouched.now_ms += step.after_ms
            before = cleaned.checkpoint
            result = cleaned.clean(ALONE)
            if result is not None and result.is_alone:
                assert (cleaned.checkpoint or 0) == (before or cleaned.log.log_start_offset)
                # The headers of batches that have to stay may be many.
                again = cleaned.clean(ALONE)
                assert again is None or not again.is_alone
            assert state_of(cleaned) == state_of(untouched)
            found = offsets(cleaned)
            assert found == sorted(set(found))


@given(st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.floats(0.0, 1.0))
def test_the_ratio_does_not_ask_again_at_once(clean: int, kept: int, ratio: float) -> None:
    dirty = DirtyRange(0, 0, clean, 0, Bound.ACTIVE_SEGMENT, 0, None, None)
    if pays_alone(dirty, kept, ratio) and 0 < ratio < 1 and clean:
        assert kept / (kept + clean) <= ratio
