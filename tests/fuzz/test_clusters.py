"""Whole clusters through troubles that seeds draw: FUZZ_CLUSTERS and FUZZ_SHARED of them.

tests/simulation/test_clusters.py and test_shared.py are the short forms. A failure names its seed;
the first one is FUZZ_SEED.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.seeds import CLUSTERS, FIRST_SEED, SHARED
from tests.simulation.cluster.run import Survey, run
from tests.simulation.shared.run import run as run_shared

GROUPS = 20

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.timeout(7200),
    pytest.mark.usefixtures("quiet_logs"),
]


@pytest.mark.parametrize("group", range(GROUPS))
def test_clusters_keep_their_promises(group: int, tmp_path: Path) -> None:
    _play(run, range(FIRST_SEED + group, FIRST_SEED + CLUSTERS, GROUPS), tmp_path)


@pytest.mark.parametrize("group", range(GROUPS))
def test_clusters_with_shared_topics_keep_their_promises(group: int, tmp_path: Path) -> None:
    _play(run_shared, range(FIRST_SEED + group, FIRST_SEED + SHARED, GROUPS), tmp_path)


def _play(play: Callable[[int, Path], Survey], seeds: range, folder: Path) -> None:
    for count, seed in enumerate(seeds):
        path = folder / str(seed)
        path.mkdir()
        problems = play(seed, path).problems
        assert not problems, "\n".join([f"seed={seed}, after {count} histories", *problems])
        shutil.rmtree(path)
    print(f"histories={len(seeds)}")
