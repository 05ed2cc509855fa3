"""The short form of `make siege`: two minutes with all that it does, half of them of troubles."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.processes import NotInstalled
from tests.siege.course import Siege
from tests.siege.stage import Plan, running

# It takes as long whatever the machine, so it must begin early.
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]

SEED, SECONDS = 1, 60.0


def test_a_besieged_cluster_keeps_its_promises(tmp_path: Path) -> None:
    try:
        with running(tmp_path, Plan.drawn(SEED, 3)) as stage:
            report = Siege(stage, SEED).run(SECONDS)
    except NotInstalled as missing:
        pytest.skip(str(missing))
    assert not report.problems, "\n".join(map(str, report.problems))
    history = report.history
    assert history.appends and history.reads and history.commits
    assert report.troubles.total()
