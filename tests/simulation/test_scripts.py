"""The short form of tests/fuzz: whole lives of a log directory, with crashes and refusals."""

from __future__ import annotations

import pytest

from tests.simulation.mistakes.disks import sync_no_log
from tests.simulation.scripts import count_operations, crash_everywhere, refuse_at

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_logs")]

STEPS = 25
POINTS_MIN = 100  # a script; with those below more than several hundred


@pytest.mark.parametrize(("seed", "steps"), [(2, 10), (4, 12), (2, STEPS), (3, STEPS)])
def test_a_crash_at_every_operation_of_a_script(seed: int, steps: int) -> None:
    survey = crash_everywhere(seed, steps)
    assert survey.crashes >= POINTS_MIN
    assert survey.nested > 0


@pytest.mark.parametrize("syncs", [False, True], ids=["operations", "syncs"])
def test_a_disk_that_refuses_one_operation_of_a_script(syncs: bool) -> None:
    count = count_operations(2, STEPS, syncs=syncs)
    turns = range(0, count, max(1, count // 6))
    assert sum(refuse_at(2, STEPS, turn, syncs=syncs).refusals for turn in turns) > 0


def test_a_flush_that_does_nothing_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks can fail: a disk that lies about what it has synced loses records."""
    sync_no_log(monkeypatch)
    with pytest.raises(AssertionError, match=r"flushed and lost|offsets went back"):
        for seed in (2, *range(10)):  # the first one has found it
            crash_everywhere(seed, STEPS)
