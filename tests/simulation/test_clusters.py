"""The short form of tests/fuzz/test_clusters.py: clusters through troubles that seeds draw.

A failure is had again by its seed: pytest -k "test_a_cluster_keeps_its_promises and 17".
"""

from __future__ import annotations

import gc
import weakref
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.simulation.cluster.run import Survey, play, run
from tests.simulation.cluster.world import World
from tests.simulation.mistakes import clusters, coordinators, disks
from tests.simulation.mistakes.finding import Mistake, find_mistake, name_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_logs")]

SEEDS = range(60)
_PLAYED_TWICE = 9  # a short one, and the last one of `make test`


@lru_cache(maxsize=1)
def played(seed: int) -> Survey:
    """Return the history of a seed; the last one is kept, and need not be played again."""
    with TemporaryDirectory() as path:
        return run(seed, Path(path))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_promises(seed: int) -> None:
    survey = played(seed)
    assert not survey.problems, "\n".join(survey.problems)
    assert survey.counts["acknowledged"]


def test_a_seed_always_gives_the_same_history(tmp_path: Path) -> None:
    histories = []
    for survey in (played(_PLAYED_TWICE), run(_PLAYED_TWICE, tmp_path)):
        found = survey.history
        histories.append((found.appends, found.reads, found.led, found.catalog_changes))
        # A cluster that is in trouble all the time may answer no reader; this one is not.
        assert survey.counts["read"] and survey.counts["committed"]
    assert histories[0] == histories[1]


def test_a_world_goes_with_its_play(tmp_path: Path) -> None:
    worlds = []

    async def scene(world: World) -> None:
        worlds.append(weakref.ref(world))

    play(1, tmp_path, 1, scene)
    gc.collect()
    assert worlds[0]() is None


# --- the checks can fail: mistakes that are found within the seeds of the short form -----------


@pytest.mark.parametrize(
    ("mistake", "problem", "first"),
    [
        (clusters.serve_without_session, "sessions: broker . appends", 2),
        (clusters.change_without_session, "sessions: broker . made change", 31),
        (clusters.serve_beyond_leases, "sessions: broker . appends", 0),
        (clusters.leave_before_serving_ends, "sessions: broker . appends", 8),
        (clusters.skip_changes, "metadata: topic|stuck", 3),
        (clusters.forget_sequences, "twice: ", 7),
        (clusters.forget_aborted, "aborted: ", 1),
        (clusters.hand_over_early, "lost: ", 17),
        (clusters.take_copies_for_complete, "lost: |stuck", 1),
        (clusters.write_no_markers, "stuck: the final reads|atomic: ", 0),
        (disks.sync_no_log, "lost: ", 2),
        (coordinators.forget_prepared_ends, "stuck: the final reads|atomic: ", 3),
        (coordinators.lose_markers_in_copies, "stuck: the final reads|atomic: ", 0),
        (coordinators.replay_first_offsets, "group: ", 23),
        (coordinators.let_former_members_commit, "fenced: |group: ", 0),
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
    find_mistake(run, SEEDS, tmp_path, mistake, problem, first)
