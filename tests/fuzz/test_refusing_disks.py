"""Whole lives of a log directory whose disk refuses one operation, each in its turn."""

from __future__ import annotations

import pytest

from tests.fuzz.seeds import SEEDS
from tests.simulation.scripts import count_operations, refuse_at

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("quiet_logs"),
]

STEPS = 40
TURNS_MAX = 60  # of a script, evenly over all its operations


@pytest.mark.parametrize("syncs", [False, True], ids=["operations", "syncs"])
@pytest.mark.parametrize("seed", SEEDS[: len(SEEDS) // 3])
def test_a_script(seed: int, syncs: bool) -> None:
    count = count_operations(seed, STEPS, syncs=syncs)
    stride = max(1, count // TURNS_MAX)
    turns = range(seed % stride, count, stride)
    assert len(turns) >= TURNS_MAX // 2
    # A sync that fails has forgotten what it should have written, as on Linux.
    refusals = sum(
        refuse_at(seed, STEPS, turn, syncs=syncs, failed_sync_forgets=syncs).refusals
        for turn in turns
    )
    # Some are swallowed: what retention cannot do now it does later.
    assert refusals > len(turns) // 2
