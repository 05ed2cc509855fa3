"""The short form of tests/fuzz/test_clusters.py with shared topics.

A failure is had again by its seed: pytest -k "test_shared_topics_keep_their_promises and 7".
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.simulation.cluster.run import Survey
from tests.simulation.mistakes import segments, shared
from tests.simulation.mistakes.finding import Mistake, find_mistake, name_of
from tests.simulation.shared.run import run

pytestmark = pytest.mark.usefixtures("quiet_logs")

SEEDS = range(6)
_PLAYED_TWICE = 5  # a short one, and the last one of `make test`
# A mistake is found within so many seeds, most of them by the first ones.
_TRIES = 30


@lru_cache(maxsize=1)
def played(seed: int) -> Survey:
    """Return the history of a seed; the last one is kept, and need not be played again."""
    with TemporaryDirectory() as path:
        return run(seed, Path(path))


@pytest.mark.parametrize("seed", SEEDS)
def test_shared_topics_keep_their_promises(seed: int) -> None:
    survey = played(seed)
    assert not survey.problems, "\n".join([f"seed={seed}", *survey.problems])
    assert survey.counts["acknowledged"]
    assert survey.counts["read"]


def test_a_seed_always_gives_the_same_history(tmp_path: Path) -> None:
    histories = []
    for survey in (played(_PLAYED_TWICE), run(_PLAYED_TWICE, tmp_path)):
        found = survey.history
        histories.append((found.appends, found.reads, found.led, found.catalog_changes))
        assert survey.counts["deleted"]
        assert survey.counts["compacted"]
        assert survey.counts["merges"]
    assert histories[0] == histories[1]


# --- the checks can fail: mistakes that are found within a few seeds ---------------------------


@pytest.mark.parametrize(
    ("mistake", "problem", "first"),
    [
        (shared.acknowledge_early, "lost: ", 7),
        (shared.commit_without_session, "fence: ", 8),
        (shared.forget_producers, "twice: |order: ", 7),
        (shared.show_the_end, "unstable: ", 7),
        (shared.delete_what_is_named, "garbage: ", 0),
        (shared.discard_named_objects, "garbage: ", 11),
        (shared.forget_handovers, "leaders: |fence: |stuck: ", 3),
        (shared.forget_small_entries, "lost: |fence: ", 2),
        (segments.misplace_packed_segments, "lost: |stuck: ", 7),
        (segments.upload_no_aborted_index, "aborted: ", 1),
        (segments.clean_open_transactions, "latest: |atomic: |lost: ", 4),
        (segments.write_old_snapshots, "refused: |twice: |order: ", 1),
        (segments.store_in_any_epoch, "back: |lost: |fence: |refused: ", 57),
        (segments.exchange_in_memory_alone, "back: ", 1),
        (segments.forget_log_starts, "start: ", 0),
        (segments.trim_early, "lost: ", 0),
        (segments.fetch_no_indexes, "stuck: ", 0),
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
