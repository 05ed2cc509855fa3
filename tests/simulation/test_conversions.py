"""Clusters whose topics go from disks to the bucket and back, through troubles that seeds draw.

A failure is had again by its seed: pytest -k "test_topics_keep_their_promises_in_both and 3".
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.mistakes import conversions
from tests.simulation.mistakes.finding import Mistake, find_mistake, name_of
from tests.simulation.shared.conversions import run

SEEDS = range(4)
# A mistake is found within so many seeds, most of them by the first ones.
_TRIES = 100


@pytest.mark.parametrize("seed", SEEDS)
def test_topics_keep_their_promises_in_both_storages(seed: int, tmp_path: Path) -> None:
    survey = run(seed, tmp_path)
    assert not survey.problems, "\n".join([f"seed={seed}", *survey.problems])
    assert survey.counts["acknowledged"]
    assert survey.counts["conversions"]


# --- the checks can fail: mistakes that are found within a few seeds ---------------------------


@pytest.mark.parametrize(
    ("mistake", "problem", "first"),
    [
        (conversions.forget_the_rest, "lost: ", 0),
        (conversions.forget_producers_of_copies, "twice: |order: |refused: ", 22),
        (conversions.believe_any_outcome, "leaders: |start: |fence: |lost: |stuck: ", 57),
    ],
    ids=name_of,
)
def test_a_mistake_is_found(
    mistake: Mistake,
    problem: str,
    first: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistake(monkeypatch)
    find_mistake(run, range(_TRIES), tmp_path, mistake, problem, first)
