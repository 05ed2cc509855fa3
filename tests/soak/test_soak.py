"""The short form of `make soak`: half a minute, too short to judge levels."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.processes import NotInstalled
from tests.soak.course import Plan, Soak, running
from tests.soak.sampling import QUANTITIES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_PLAN = Plan(seconds=30.0, round_s=15.0, full_s=3.0)


def test_a_cluster_serves_its_clients_while_its_levels_are_watched(tmp_path: Path) -> None:
    try:
        with running(tmp_path) as cluster:
            report = Soak(cluster, _PLAN).run()
    except NotInstalled as missing:
        pytest.skip(str(missing))
    assert report.written and report.read
    assert len(report.troubles) >= 2
    assert set(report.samples) == set(QUANTITIES)
    assert all(report.samples[one] for one in QUANTITIES)
