"""Whole clusters through troubles that seeds draw: FUZZ_CLUSTERS seeds from FUZZ_SEED on.

tests/simulation/test_clusters.py is its short form. A failure names its seed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.seeds import CLUSTERS, FIRST_SEED
from tests.simulation.cluster.run import run

GROUPS = 20

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("quiet_logs"),
]


@pytest.mark.parametrize("group", range(GROUPS))
def test_clusters_keep_their_promises(group: int, tmp_path: Path) -> None:
    for seed in range(FIRST_SEED + group, FIRST_SEED + CLUSTERS, GROUPS):
        path = tmp_path / str(seed)
        path.mkdir()
        problems = run(seed, path).problems
        assert not problems, "\n".join([f"seed={seed}", *problems])
