"""Histories from seeds against the plain model, and against what no cleaning may change."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from odradek.protocol.batches import Record
from tests import profiles
from tests.cleaner.kafka_cleaner import aborted_in
from tests.cleaner.model import Range, model_clean
from tests.cleaner.once import SETTINGS
from tests.cleaner.players import Player
from tests.cleaner.random_histories import (
    TRANSACTIONAL,
    Clean,
    Configure,
    End,
    Roll,
    Step,
    Trim,
    Wait,
    history,
)
from tests.cleaner.test_clean_model import new_world
from tests.cleaner.worlds import World
from tests.fuzz.seeds import FIRST_SEED, HISTORIES
from tests.storage.transactional import committed_offsets

SHORT = profiles.examples(200)
LONG_MS = 1_000_000_000

# After this, all that is rolled is cleaned.
ALL: list[Step] = [
    *(End(producer, commit=True) for producer in TRANSACTIONAL),
    Configure(
        {
            "min_compaction_lag_ms": 0,
            "max_compaction_lag_ms": 2**63 - 1,
            "min_cleanable_dirty_ratio": 0.0,
        }
    ),
    Roll(),
]

State = dict[bytes, bytes]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("quiet_logs"),
    pytest.mark.timeout(600),
]


# Some histories each time, and more of them where there is time for it.
for_seeds = pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(FIRST_SEED, FIRST_SEED + SHORT), id="some"),
        pytest.param(
            range(FIRST_SEED + SHORT, FIRST_SEED + SHORT + HISTORIES),
            id="many",
            marks=[pytest.mark.interop, pytest.mark.timeout(3600)],
        ),
    ],
)


def committed(world: World, start: int = 0) -> list[Record]:
    """Return what a reader of committed records finds from an offset on."""
    world.log.log_start_offset, kept = start, world.log.log_start_offset
    offsets = set(committed_offsets(world.log))
    world.log.log_start_offset = kept
    return [record for record in world.records() if record.offset in offsets]


def state_after(records: Sequence[Record], state: State | None = None) -> State:
    """Return what a reader has who goes on from a state."""
    left = dict(state or {})
    for record in records:
        if record.key is not None:
            left.pop(record.key, None)
            if record.value is not None:
                left[record.key] = record.value
    return left


def lasting(steps: Sequence[Step]) -> list[Step]:
    """Keep all tombstones, and all records that may be read."""
    kept = [step for step in steps if not isinstance(step, Trim)]
    return [
        Configure({**step.settings, "delete_retention_ms": LONG_MS})
        if isinstance(step, Configure)
        else step
        for step in [Configure({}), *kept]
    ]


@for_seeds
def test_each_cleaning_leaves_what_the_model_does(seeds: Sequence[int]) -> None:
    cleanings = 0
    for seed in seeds:
        with new_world() as world:
            player = Player(world)
            for step in history(seed):
                if not isinstance(step, Clean):
                    player.play(step)
                    continue
                cleanings += clean_as_the_model(world, step, seed)
    assert cleanings > len(seeds)


def clean_as_the_model(world: World, step: Clean, seed: int) -> bool:
    before, aborted = world.batches(), aborted_in(world.log.directory)
    producers = list(world.log.producers)
    result = world.clean(replace(SETTINGS, chunk_bytes=step.chunk_bytes))
    if result is None:
        return False
    expected, kept = model_clean(
        before,
        Range(result.first_dirty_offset, result.end_offset),
        now_ms=world.now_ms,
        delete_retention_ms=world.log.config.delete_retention_ms,
        producers_last={p.producer_id: p.last_data_offset for p in producers if p.batches},
        epochs_without_data={p.producer_id: p.epoch for p in producers if not p.batches},
        aborted=aborted,
    )
    found = [(batch.facts, batch.records) for batch in world.batches()]
    assert found == [(batch.facts, batch.records) for batch in expected], f"seed {seed}"
    assert sorted(aborted_in(world.log.directory)) == sorted(kept), f"seed {seed}"
    return True


@for_seeds
def test_cleaning_again_at_the_same_time_changes_nothing_that_is_read(
    seeds: Sequence[int],
) -> None:
    for seed in seeds:
        with new_world() as world:
            Player(world).play_all([*lasting(history(seed)), *ALL])
            contents, records = [], []
            for _ in range(3):
                world.directory.cleaner_offsets.clear()  # so that all of it is dirty, each time
                world.clean()
                contents.append([s.log.read(0, s.size_bytes) for s in world.log.segments])
                records.append(world.records())
            # The second one may find transactions without batches, and mark their ends.
            assert records[1] == records[0], f"seed {seed}"
            assert contents[2] == contents[1], f"seed {seed}"


@for_seeds
def test_readers_end_with_the_final_state_wherever_they_are(seeds: Sequence[int]) -> None:
    for seed in seeds:
        source = random.Random(seed)
        with new_world() as world, new_world() as untouched:
            players = Player(world), Player(untouched)
            for step in lasting(history(seed)):
                if not isinstance(step, Clean):
                    for player in players:
                        player.play(step)
                    continue
                everything = committed(untouched)
                reached = source.randrange(world.log.log_end_offset + 1)
                until = state_after([r for r in committed(world) if r.offset < reached])
                players[0].play(step)
                expected = state_after(everything)
                assert state_after(committed(world)) == expected, f"seed {seed}"
                rest = committed(world, reached)
                rest = [record for record in rest if record.offset >= reached]
                assert state_after(rest, until) == expected, f"seed {seed}"
                # What is there was there, where it is.
                assert set(world.records()) <= set(untouched.records())
                assert world.log.log_end_offset == untouched.log.log_end_offset


@for_seeds
def test_where_segments_begin_makes_no_difference_to_what_is_left(seeds: Sequence[int]) -> None:
    for seed in seeds:
        source = random.Random(seed)
        whole = [step for step in lasting(history(seed)) if not isinstance(step, Roll | Wait)]
        left = []
        for _ in range(2):
            steps = [one for step in whole for one in (*[Roll()] * source.randrange(2), step)]
            with new_world() as world:
                Player(world).play_all([*steps, *ALL, Clean()])
                left.append([r for r in committed(world) if r.value is not None])
        assert left[0] == left[1], f"seed {seed}"
