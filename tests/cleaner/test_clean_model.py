"""Cleaning against a plain model of it, and against itself: over generated histories."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cleaner.rules.job import CleanerSettings
from tests.cleaner.histories import HISTORIES, Author, Clean, Data, Roll, Step, write_all
from tests.cleaner.model import Range, model_clean
from tests.cleaner.once import SETTINGS
from tests.cleaner.worlds import EAGER, World

pytestmark = pytest.mark.slow

# A chunk of a few hundred bytes holds one batch or two, and most batches are larger than one.
SMALL_CHUNKS = replace(SETTINGS, chunk_bytes=200)
# A map of one or two keys: all others are spilled.
SPILLING = replace(SETTINGS, map_bytes_max=0, map_load_factor=0.02)
SPILLING_MORE = replace(SPILLING, map_load_factor=0.04, chunk_bytes=200)
# The same, but nothing may be spilled: runs end inside segments.
PARTIAL = replace(SPILLING_MORE, spill_bytes_max=0)


@contextmanager
def new_world(segment_bytes: int = 1 << 20) -> Iterator[World]:
    memory = Path("/dev/shm")  # where there is one: a thousand logs' fsyncs take a while
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield World(Path(path), replace(EAGER, internal_segment_bytes=segment_bytes))


def state_of(world: World) -> dict[bytes, bytes]:
    """What a consumer from the beginning ends with, aborted transactions not read."""
    state: dict[bytes, bytes] = {}
    for record in world.records():
        if record.key is not None:
            if record.value is None:
                state.pop(record.key, None)
            else:
                state[record.key] = record.value
    return state


HOW = st.sampled_from([SETTINGS, SMALL_CHUNKS, SPILLING, SPILLING_MORE])


@given(HISTORIES, HOW, st.sampled_from([1, 600, 1 << 20]))
def test_every_cleaning_of_a_history_equals_the_models(
    steps: list[Step], how: CleanerSettings, segment_bytes: int
) -> None:
    with new_world(segment_bytes) as world:
        author = Author(world)
        for step in [*steps, Roll(), Clean(0)]:
            if not isinstance(step, Clean):
                author.write(step)
                continue
            author.end_all()
            world.now_ms += step.after_ms
            before, first_dirty = world.batches(), world.checkpoint or 0
            producers = {p.producer_id: p.last_data_offset for p in world.log.producers}
            result = world.clean(how)
            if result is None:
                continue
            expected, author.aborted = model_clean(
                before,
                Range(first_dirty, result.end_offset),
                now_ms=world.now_ms,
                delete_retention_ms=world.log.config.delete_retention_ms,
                producers_last=producers,
                aborted=author.aborted,
            )
            assert [b.facts for b in world.batches()] == [b.facts for b in expected]
            assert [b.records for b in world.batches()] == [b.records for b in expected]
            assert result.end_offset == world.checkpoint == world.log.active.base_offset
            assert not list(world.log.directory.glob("spill*"))


@given(HISTORIES)
def test_a_second_cleaning_at_the_same_time_changes_nothing(steps: list[Step]) -> None:
    with new_world() as world:
        # Markers and transactions' empty batches need several passes to go, whatever the time.
        plain = [s for s in steps if not isinstance(s, Data) or (s.producer or 0) < 3]
        write_all(world, [*plain, Roll()])
        contents = []
        for _ in range(2):
            world.directory.cleaner_offsets.clear()  # so that all of it is dirty, each time
            world.clean()
            contents.append([s.log.read(0, s.size_bytes) for s in world.log.segments])
        assert contents[1] == contents[0]


@given(HISTORIES, st.data())
def test_how_a_log_is_split_into_segments_makes_no_difference(
    steps: list[Step], data: st.DataObject
) -> None:
    whole = [step for step in steps if not isinstance(step, Roll)]
    split: list[Step] = []
    for step in whole:
        split += [Roll()] * data.draw(st.integers(0, 1)) + [step]
    with new_world() as one, new_world(400) as many:
        write_all(one, [*(s for s in whole if not isinstance(s, Clean)), Roll(), Clean(0)])
        write_all(many, [*(s for s in split if not isinstance(s, Clean)), Roll(), Clean(0)])
        assert [b.facts for b in many.batches()] == [b.facts for b in one.batches()]
        assert many.records() == one.records()


@given(HISTORIES, st.sampled_from([SETTINGS, SPILLING, PARTIAL]))
def test_the_latest_values_stay_and_offsets_never_move(
    steps: list[Step], how: CleanerSettings
) -> None:
    plain = [s for s in steps if not isinstance(s, Data) or (s.producer or 0) < 3]
    with new_world() as cleaned, new_world() as untouched:
        write_all(cleaned, [*plain, Roll(), Clean(0)], how)
        write_all(untouched, [s for s in plain if not isinstance(s, Clean)])
        assert state_of(cleaned) == state_of(untouched)
        assert cleaned.log.log_end_offset == untouched.log.log_end_offset
        originals = {record.offset: record for record in untouched.records()}
        survivors = cleaned.records()
        assert [r.offset for r in survivors] == sorted(r.offset for r in survivors)
        for record in survivors:
            original = originals[record.offset]
            assert (record.key, record.value) == (original.key, original.value)
