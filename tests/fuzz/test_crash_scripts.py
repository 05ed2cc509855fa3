"""A crash at every file operation of whole lives of a log directory, drawn from seeds."""

from __future__ import annotations

import pytest

from tests.fuzz.seeds import SEEDS
from tests.simulation.scripts import crash_everywhere

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("quiet_logs"),
]

STEPS = 60
POINTS_MIN = 450  # a script; with 24 scripts more than 10,000


@pytest.mark.parametrize("seed", SEEDS)
def test_a_script(seed: int) -> None:
    survey = crash_everywhere(seed, STEPS)
    assert survey.crashes >= POINTS_MIN
    assert survey.nested > 0
