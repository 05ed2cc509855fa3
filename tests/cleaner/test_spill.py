"""More keys than memory: one run, one rewriting, temporary files that are bounded and go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cleaner.errors import CleaningAborted
from odradek.cleaner.passes.hashing import HashKey, hash_key_plain
from odradek.cleaner.passes.mapping import SPILL_COLUMNS
from odradek.cleaner.passes.offset_map import Obsolete
from odradek.cleaner.passes.spill import CLEAN, DIRTY, ROW_BYTES, Spill
from odradek.storage import exchange
from tests.cleaner.once import SETTINGS, clean_once
from tests.cleaner.worlds import EAGER, FS, World

# 64 slots, of which 57 may be in use, and 51 when more keys may be spilled.
SMALL_MAP = replace(SETTINGS, map_bytes_max=1024)
IN_MAP = 51


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, replace(EAGER, internal_segment_bytes=4000))


def write(world: World, first: int, count: int, value: bytes) -> None:
    for start in range(first, first + count, 10):
        world.append([(b"key-%d" % key, value) for key in range(start, start + 10)])
        if start % 50 == 0:
            world.roll()
    world.roll()


def test_many_more_keys_than_the_map_holds_take_one_run(world: World) -> None:
    write(world, 0, 1000, b"1")
    write(world, 0, 1000, b"2")
    result = world.clean(SMALL_MAP)
    assert result is not None
    assert not result.is_partial
    assert world.checkpoint == world.log.active.base_offset
    assert {record.value for record in world.records()} == {b"2"}
    assert len(world.records()) == 1000
    assert result.map_keys == 1000
    assert result.map_bytes <= SMALL_MAP.map_bytes_max
    # What the map had room for needed no spilling, the rest is written down once.
    assert result.spilled_bytes == ROW_BYTES * (2 * 1000 - 2 * IN_MAP)
    assert result.spill_count > 1
    assert not list(world.log.directory.glob("spill*"))


def test_unique_keys_are_left_as_they_are_however_many_there_are(world: World) -> None:
    write(world, 0, 2000, b"v" * 40)
    result = world.clean(SMALL_MAP)
    assert result is not None
    assert (result.is_partial, result.segments_written, result.written_bytes) == (False, 0, 0)
    assert result.segments_kept == len(world.log.segments) - 1
    assert len(world.records()) == 2000


def test_clean_segments_are_looked_up_as_well(world: World) -> None:
    write(world, 0, 500, b"1")
    world.clean()
    write(world, 200, 500, b"2")
    result = world.clean(SMALL_MAP)
    assert result is not None and result.spilled_bytes
    values = {record.key: record.value for record in world.records()}
    assert len(world.records()) == len(values) == 700
    assert [values[b"key-%d" % key] for key in (0, 199, 200, 699)] == [b"1", b"1", b"2", b"2"]


def test_past_the_bound_on_temporary_files_the_run_ends_where_the_map_is_full(
    world: World,
) -> None:
    write(world, 0, 1000, b"1")
    bounded = replace(SMALL_MAP, spill_bytes_max=1000 * ROW_BYTES - 1)
    result = world.clean(bounded)
    assert result is not None
    assert (result.is_partial, result.spilled_bytes) == (True, 0)
    while world.clean(bounded) is not None:
        pass
    assert world.checkpoint == world.log.active.base_offset
    assert len(world.records()) == 1000
    world.directory.cleaner_offsets.clear()
    enough = world.clean(replace(bounded, spill_bytes_max=1100 * ROW_BYTES))
    assert enough is not None and not enough.is_partial


@pytest.mark.slow
@pytest.mark.parametrize("apart", [7, 3])
def test_temporary_files_go_however_a_run_ends(world: World, apart: int) -> None:
    write(world, 0, 1000, b"1")
    write(world, 0, 1000, b"2")
    seen, aborts = 0, 0
    for limit in range(0, 200, apart):
        calls = 0

        def before_io(size: int, limit: int = limit) -> None:
            nonlocal calls, seen
            calls += 1
            seen = max(seen, len(list(world.log.directory.glob("spill*"))))
            if calls > limit:
                raise CleaningAborted(world.log.name)

        try:
            clean_once(
                world.log, world.directory, world.now_ms, fs=FS, settings=SMALL_MAP,
                before_io=before_io,
            )  # fmt: skip
        except CleaningAborted:
            aborts += 1
        assert not list(world.log.directory.glob("spill*"))
    assert aborts and seen


def test_temporary_files_that_a_crash_left_go_at_the_next_start(world: World) -> None:
    path = world.log.directory / "spill-12345678-000.dirty.tmp"
    path.write_bytes(b"x" * 100)
    exchange.repair(FS, world.log.directory)
    assert not path.exists()


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=300),
    st.lists(st.integers(0, 90), max_size=100),
    st.integers(0, 200),
    st.sampled_from([0.02, 0.3, 0.9]),
)
def test_parts_mark_what_one_map_would(
    tmp_path_factory: pytest.TempPathFactory,
    dirty: list[int],
    clean: list[int],
    map_slots: int,
    load_factor: float,
) -> None:
    points = HashKey(1234567890123456789, 987654321098765432)

    def row(key: int, ordinal: int) -> tuple[int, ...]:
        word_0, word_1, home = hash_key_plain(b"key-%d" % key, points)
        return word_0 & 0xFFFFFFFF, word_0 >> 32, word_1 >> 32, ordinal, home

    def rows(keys: list[int], start: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
        made = [row(key, start + at) for at, key in enumerate(keys)]
        return np.array(made, np.uint32).reshape(-1, SPILL_COLUMNS)

    obsolete = Obsolete(len(dirty) + len(clean))
    directory = tmp_path_factory.mktemp("spill")
    with Spill(
        FS, directory, 1, record_count=len(dirty), map_bytes_max=16 * map_slots,
        load_factor_max=load_factor, before_io=lambda size: None,
    ) as spill:  # fmt: skip
        for start in range(0, len(dirty), 7):
            spill.write(DIRTY, rows(dirty[start : start + 7], start))
        spill.write(CLEAN, rows(clean, len(dirty)))
        assert spill.resolve(obsolete.bits) == len(set(dirty))
    assert not list(directory.iterdir())
    latest = {key: at for at, key in enumerate(dirty)}
    for at, key in enumerate(dirty):
        assert (at in obsolete) == (latest[key] != at)
    for at, key in enumerate(clean, len(dirty)):
        assert (at in obsolete) == (key in latest)
