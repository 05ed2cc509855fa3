"""Whole clusters through troubles that seeds draw: FUZZ_CLUSTERS of them, and others.

FUZZ_SHARED have shared topics, and in FUZZ_CONVERSIONS topics go from one storage to the other.
tests/simulation/test_clusters.py, test_shared.py and test_conversions.py are the short forms. A
failure names its seed; the first one is FUZZ_SEED.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.fuzz.seeds import CLUSTERS, CONVERSIONS, FIRST_SEED, SHARED
from tests.simulation.cluster.run import Survey, run
from tests.simulation.shared.conversions import run as run_converting
from tests.simulation.shared.run import run as run_shared

Play = Callable[[int, Path], Survey]

GROUPS = 20
AT_ONCE = 50

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(7200)]


@pytest.mark.parametrize("group", range(GROUPS))
def test_clusters_keep_their_promises(group: int, tmp_path: Path) -> None:
    _play(run, range(FIRST_SEED + group, FIRST_SEED + CLUSTERS, GROUPS), tmp_path)


@pytest.mark.parametrize("group", range(GROUPS))
def test_clusters_with_shared_topics_keep_their_promises(group: int, tmp_path: Path) -> None:
    _play(run_shared, range(FIRST_SEED + group, FIRST_SEED + SHARED, GROUPS), tmp_path)


@pytest.mark.parametrize("group", range(GROUPS))
def test_clusters_whose_topics_change_storage_keep_their_promises(
    group: int, tmp_path: Path
) -> None:
    _play(run_converting, range(FIRST_SEED + group, FIRST_SEED + CONVERSIONS, GROUPS), tmp_path)


def _play(play: Play, seeds: range, folder: Path) -> None:
    """Play histories in processes of their own.

    Within a test, pytest keeps log records and warnings, and with them the worlds of them all.
    """
    parts = [seeds[at : at + AT_ONCE] for at in range(0, len(seeds), AT_ONCE)]
    # Executors of concurrent.futures that replace their processes can hang in Python 3.11.
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        played = pool.map(partial(_play_some, play, folder), parts, chunksize=1)
    failed = [one for part in played for one in part]
    assert not failed, "\n".join(failed)
    print(f"histories={len(seeds)}")


def _play_some(play: Play, folder: Path, seeds: range) -> list[str]:
    """Play histories; return a text for each that broke a promise."""
    logging.disable()
    failed = []
    for count, seed in enumerate(seeds):
        path = folder / str(seed)
        path.mkdir()
        if problems := play(seed, path).problems:
            failed.append("\n".join([f"seed={seed}, after {count} histories", *problems]))
        shutil.rmtree(path)
    return failed
