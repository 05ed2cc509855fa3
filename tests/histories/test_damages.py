"""Sound histories of a perfect cluster pass; one damage is found, with its kind and place."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.checks.checker import check
from tests.histories.damages import DAMAGES, Damage
from tests.histories.history import History
from tests.histories.perfect import PLACES, STEPS, PerfectCluster
from tests.histories.playing import Player

Steps = st.lists(st.sampled_from(STEPS), max_size=80)
# A damage is found in so many histories, of so many that are drawn.
_DAMAGED, _SEEDS_MAX = 10, 100


class Memory:
    """Plays the lines of clients at once."""

    def __init__(self, clock: list[float]) -> None:
        self._player, self._clock, self._count = Player(), clock, 0
        self.history = self._player.history

    def begin(self, kind: str, client: str, **members: object) -> int:
        """Note that an operation begins; return its id."""
        self._count += 1
        line = {"id": self._count, "begin": kind, "client": client, "time_s": self._clock[0]}
        self._player.play(0, {**line, **members})
        return self._count

    def end(self, number: int, outcome: str = "done", **members: object) -> None:
        """Note that an operation has ended."""
        line = {"id": number, "outcome": outcome, "time_s": self._clock[0]}
        self._player.play(0, {**line, **members})


def played(steps: list[str], seed: int) -> History:
    """Play steps with a perfect cluster."""
    clock = [100.0]
    memory = Memory(clock)
    PerfectCluster(memory, random.Random(seed), clock).play(steps)
    return memory.history


def drawn(seed: int, length: int = 100) -> History:
    """Play steps that a seed draws."""
    return played(random.Random(f"steps {seed}").choices(STEPS, k=length), seed)


@given(Steps, st.integers(0, 1_000_000))
def test_no_sound_history_is_refused(steps: list[str], seed: int) -> None:
    assert check(played(steps, seed)) == []


@given(Steps, st.integers(0, 1_000_000))
def test_no_history_is_refused_for_its_missing_end(steps: list[str], seed: int) -> None:
    history = played(steps, seed)
    for name in ("final", "final_committed", "final_starts", "final_ends"):
        getattr(history, name).clear()
    history.scans = [one for one in history.scans if one.reader != "final"]
    assert check(history) == []


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_a_damage_is_found(damage: Damage) -> None:
    found = 0
    for seed in range(_SEEDS_MAX):
        history = drawn(seed)
        offsets = damage(history, random.Random(seed))
        if offsets is None:
            continue
        problems = [one for one in check(history) if one.kind == DAMAGES[damage]]
        named = {offset for one in problems for offset in one.offsets}
        assert problems and named >= set(offsets), (seed, problems)
        assert all(one.events and one.place in PLACES for one in problems)
        found += 1
        if found == _DAMAGED:
            return
    raise AssertionError("the histories have too little to damage")


def test_the_perfect_cluster_does_all_that_is_checked() -> None:
    counts: Counter[str] = Counter()
    for seed in range(_DAMAGED):
        history = drawn(seed)
        for name in (
            "appends", "transactions", "reads", "scans", "watermarks", "starts", "deletions",
            "commits", "fetches", "deliveries", "acks", "led", "disruptions",
        ):  # fmt: skip
            counts[name] += len(getattr(history, name))
        cleaned = history.final_ends["table", 0] - len(history.final["table", 0])
        counts["cleaned"] += cleaned
    assert len(counts) == 14
    assert min(counts.values()) > _DAMAGED
