"""What a cleaning leaves as it is, or need not even read; tombstones of idle logs; dry runs."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cleaner.passes.clean import clean
from odradek.cleaner.passes.key_filter import KeyFilter, read_filter
from odradek.cleaner.passes.summary import read_summary
from odradek.cleaner.rules.job import make_job
from odradek.cleaner.rules.policy import Reason, split_settled
from odradek.cleaner.runtime.progress import Horizons, find_candidate
from odradek.storage import exchange
from odradek.storage.segment import KEYS, LOG
from tests.cleaner.once import SETTINGS
from tests.cleaner.worlds import EAGER, FS, World, pairs

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=300)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, replace(EAGER, internal_segment_bytes=2000))


def write_segment(world: World, keys: range, value: bytes = b"v" * 30) -> None:
    """Write a segment's worth of keys, too much for two to be merged."""
    world.append([(b"key-%d" % key, value) for key in keys])
    world.roll()


def identities(world: World) -> list[tuple[str, int]]:
    """Name each segment's file by what it is, not by what it is called."""
    paths = [segment.path(LOG) for segment in world.log.segments[:-1]]
    return [(path.name, path.stat().st_ino) for path in paths]


def test_a_segment_in_which_nothing_is_obsolete_keeps_its_files(world: World) -> None:
    write_segment(world, range(30))
    write_segment(world, range(100, 130))
    write_segment(world, range(30))  # hides the first segment
    before = identities(world)
    result = world.clean()
    assert result is not None
    assert [name for name, _ in identities(world)] == [name for name, _ in before]
    changed = [one for one, other in zip(before, identities(world), strict=True) if one != other]
    assert [name for name, _ in changed] == [before[0][0]]
    assert (result.segments_kept, result.segments_written) == (2, 1)
    assert result.written_bytes < result.start_bytes / 2
    assert result.reclaimed_bytes > 0


def test_a_clean_segment_without_a_dirty_key_is_not_even_read(world: World) -> None:
    for first in (0, 100, 200):
        write_segment(world, range(first, first + 30))
    world.clean()
    write_segment(world, range(100, 130), b"w" * 30)
    kept = [identities(world)[at] for at in (0, 2)]
    result = world.clean()
    assert result is not None
    assert (result.segments_skipped, result.segments_kept) == (2, 3)
    assert result.segments_read == 2
    assert set(kept) <= set(identities(world))
    assert {r.value for r in world.records() if r.key == b"key-100"} == {b"w" * 30}
    assert len(world.records()) == 90
    # What was not read counts all the same.
    assert (result.start_records, result.end_records) == (120, 90)


@pytest.mark.parametrize("how", ["flipped", "cut", "absent", "of another size", "another's"])
def test_a_filter_that_cannot_be_relied_on_counts_as_absent(world: World, how: str) -> None:
    for first in (0, 100):
        write_segment(world, range(first, first + 30))
    world.clean()
    paths = [segment.path(KEYS) for segment in world.log.segments[:2]]
    damage: dict[str, Callable[[bytes], bytes]] = {
        "flipped": lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        "cut": lambda data: data[: len(data) // 2],
        "of another size": lambda data: data + b"\0",
        "another's": lambda data: paths[1].read_bytes(),
    }
    if how == "absent":
        paths[0].unlink()
    else:
        paths[0].write_bytes(damage[how](paths[0].read_bytes()))
    write_segment(world, range(30), b"w" * 30)
    world.clean()
    assert {r.value for r in world.records() if r.key == b"key-7"} == {b"w" * 30}
    assert len(world.records()) == 60


@given(HASHES, HASHES)
def test_a_filter_never_denies_a_key_that_is_there(present: list[int], asked: list[int]) -> None:
    made = KeyFilter.of([np.array(present, np.uint64)])
    for one in present:
        assert made.may_have_any(np.array([one], np.uint64))
    wanted = np.array(asked, np.uint64)
    assert made.may_have_any(wanted) >= bool(set(asked) & set(present))


def test_a_filter_denies_nearly_all_keys_that_are_not_there() -> None:
    source = np.random.default_rng(7)
    made = KeyFilter.of([source.integers(0, 2**64, 100_000, np.uint64)])
    # Expected: 10^5 * 4 * 2^-32, a ten-thousandth.
    assert not made.may_have_any(source.integers(0, 2**64, 100_000, np.uint64))
    assert 4 * (len(made.starts) + len(made.fingerprints)) <= 6 * 100_000


def test_facts_and_filter_come_back_as_they_were_written(world: World) -> None:
    write_segment(world, range(30))
    world.append(pairs("a:1 b:-"))
    world.roll()
    result = world.clean()
    assert result is not None
    first, second = world.log.segments[:2]
    facts, keys = read_summary(first), read_filter(first)
    assert facts is not None and keys is not None
    assert (facts.record_count, facts.next_horizon_ms, facts.must_read) == (30, None, False)
    assert len(keys.fingerprints) == 30
    tombstone = read_summary(second)
    assert tombstone is not None
    assert tombstone.next_horizon_ms == world.now_ms + EAGER.delete_retention_ms
    assert result.next_horizon_ms == tombstone.next_horizon_ms


def test_the_file_goes_with_its_segment(world: World) -> None:
    write_segment(world, range(30))
    write_segment(world, range(30))
    world.clean()
    write_segment(world, range(30))
    world.clean()
    world.log.delete_segments(1, world.now_ms)
    world.directory.remove(world.directory.take_due_removals(world.now_ms + 10**9))
    stems = {segment.path("").name for segment in world.log.segments}
    left = {path.name.removesuffix(KEYS) for path in world.log.directory.glob(f"*{KEYS}*")}
    assert left <= stems


def test_one_that_lost_its_segment_goes_at_the_next_start(world: World) -> None:
    write_segment(world, range(30))
    world.clean()
    (kept,) = world.log.directory.glob(f"*{KEYS}")
    orphan = kept.with_name(f"{7:020d}{KEYS}")
    orphan.write_bytes(kept.read_bytes())
    exchange.repair(FS, world.log.directory)
    assert kept.exists() and not orphan.exists()


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12))
def test_only_segments_far_larger_than_what_follows_stay_alone(sizes: list[int]) -> None:
    parts = list(split_settled(sizes, range(len(sizes))))
    assert [at for part in parts for at in part] == list(range(len(sizes)))
    for part in parts[:-1]:
        assert len(part) == 1
        assert sizes[part.start] > 2 * sum(sizes[part.stop :])


@pytest.mark.slow
def test_growing_logs_copy_each_byte_a_few_times_and_have_few_segments(tmp_path: Path) -> None:
    world = World(tmp_path, replace(EAGER, internal_segment_bytes=1 << 20))
    rounds, written = 60, 0
    for at in range(rounds):
        write_segment(world, range(30 * at, 30 * at + 30))
        result = world.clean()
        written += result.written_bytes if result else 0
    size = world.log.size_bytes
    assert len(world.log.segments) <= 10
    # As it grows by one piece at a time, Kafka would copy it 30 times over.
    assert written < 6 * size
    assert len(world.records()) == 30 * rounds


# --- tombstones of idle topics ------------------------------------------------------------------


def test_an_expired_tombstone_makes_a_log_cleanable_by_itself(world: World) -> None:
    horizons: Horizons = {}
    world.append(pairs("a:1 b:1"))
    world.append(pairs("a:-"))
    world.roll()
    world.clean(horizons=horizons)
    assert world.values() == ["b:1", "a:-"]
    assert world.clean(horizons=horizons) is None
    due_ms = world.now_ms + EAGER.delete_retention_ms + EAGER.delete_retention_ms // 10
    world.now_ms = due_ms - 1
    assert world.clean(horizons=horizons) is None
    world.now_ms = due_ms
    result = world.clean(horizons=horizons)
    assert result is not None and result.reason is Reason.EXPIRED
    assert world.values() == ["b:1"]
    assert result.expired_tombstones == 1
    assert world.clean(horizons=horizons) is None
    assert world.checkpoint == world.log.active.base_offset


@pytest.mark.parametrize("has_facts", [True, False])
def test_the_time_of_the_next_expiry_is_found_again_after_a_restart(
    world: World, has_facts: bool
) -> None:
    write_segment(world, range(30))
    world.append(pairs("a:-"))
    world.roll()
    world.clean(horizons={})
    if not has_facts:  # as in a directory that Kafka has cleaned
        for path in world.log.directory.glob(f"*{KEYS}"):
            path.unlink()
    afresh: Horizons = {}
    result = world.clean(horizons=afresh)
    if has_facts:
        assert result is None
    else:
        assert result is not None and result.reason is Reason.SURVEY
        assert (result.segments_read, result.segments_written) == (2, 0)
    assert afresh == {("prices", 0): world.now_ms + EAGER.delete_retention_ms}
    assert world.clean(horizons=afresh) is None


def test_such_a_cleaning_leaves_dirty_records_alone(tmp_path: Path) -> None:
    # Were they cleaned, their tombstones would bring about the next one, and so on.
    world = World(tmp_path, replace(EAGER, min_cleanable_dirty_ratio=0.9))
    horizons: Horizons = {}
    world.append(pairs("a:1 b:1 a:-"))
    world.roll()
    world.clean(horizons=horizons)
    checkpoint = world.checkpoint
    world.append(pairs("b:-"))
    world.roll()
    world.now_ms += 2 * EAGER.delete_retention_ms
    assert world.clean(horizons=horizons) is None  # the dirty records may cause a run soon
    world.now_ms += EAGER.segment_ms
    result = world.clean(horizons=horizons)
    assert result is not None and result.reason is Reason.EXPIRED
    assert world.values() == ["b:1", "b:-"]
    assert world.checkpoint == checkpoint
    assert horizons == {("prices", 0): None}
    assert not world.batches()[-1].header.has_delete_horizon


# --- dry runs -----------------------------------------------------------------------------------


def test_a_dry_run_predicts_the_result_and_touches_nothing(world: World) -> None:
    for first in (0, 100, 0, 200):
        write_segment(world, range(first, first + 30))
    candidate = find_candidate(world.log, world.directory, world.now_ms)
    assert candidate is not None
    job = make_job(world.log, candidate.dirty, SETTINGS, world.now_ms, Reason.ASKED)

    def state() -> list[tuple[str, int, int]]:
        stats = [(path, path.stat()) for path in sorted(world.log.directory.iterdir())]
        return [(path.name, found.st_ino, found.st_mtime_ns) for path, found in stats]

    before = state()
    predicted = clean(
        job, fs=FS, random_below=secrets.randbelow, clock_ms=lambda: world.now_ms,
        before_io=lambda size: None, propose=None,
    )  # fmt: skip
    assert state() == before
    result = world.clean()
    assert result is not None
    assert replace(predicted, reason=result.reason) == result
