"""The short form of tests/fuzz/test_clusters.py: clusters through troubles that seeds draw.

A failure is had again by its seed: pytest -k "test_a_cluster_keeps_its_promises and 17".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog import store
from odradek.broker.catalog.membership import Membership
from odradek.broker.fetch import plans
from odradek.broker.reassignment.followers import Followers
from odradek.broker.topics.following import FollowingTopics
from odradek.broker.transactions.remote import RemoteTransactions
from odradek.storage.producers import ProducerStates
from tests.simulation.cluster.run import run
from tests.simulation.mistakes import sync_no_log

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_logs")]

SEEDS = range(60)
Break = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_promises(seed: int, tmp_path: Path) -> None:
    survey = run(seed, tmp_path)
    assert not survey.problems, "\n".join(survey.problems)
    assert survey.counts["acknowledged"]


def test_a_seed_always_gives_the_same_history(tmp_path: Path) -> None:
    histories = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        survey = run(3, tmp_path / name)
        found = survey.history
        histories.append((found.appends, found.reads, found.led, found.catalog_changes))
        # A cluster that is in trouble all the time may answer no reader; this one is not.
        assert survey.counts["read"] and survey.counts["committed"]
    assert histories[0] == histories[1]


# --- the checks can fail: mistakes that are found within the seeds of the short form -----------


def serve_without_session(patch: pytest.MonkeyPatch) -> None:
    """A broker whose session has ended goes on serving."""
    patch.setattr(Membership, "_stop_serving", lambda self: None)


def change_without_session(patch: pytest.MonkeyPatch) -> None:
    """A store does not look at its session."""
    patch.setattr(store, "check_session", lambda connection, epoch: None)


def skip_changes(patch: pytest.MonkeyPatch) -> None:
    """A broker overlooks some of the others' changes."""
    follow, count = FollowingTopics.follow, 0

    async def forgetful(self: Any, *news: Any) -> None:
        nonlocal count
        count += 1
        if count % 8:
            await follow(self, *news)

    patch.setattr(FollowingTopics, "follow", forgetful)


def forget_sequences(patch: pytest.MonkeyPatch) -> None:
    """A log takes a batch again that a producer has sent again."""
    patch.setattr(ProducerStates, "check", lambda self, batch, *, from_client: None)


def forget_aborted(patch: pytest.MonkeyPatch) -> None:
    """A fetch does not name aborted transactions."""
    patch.setattr(plans, "find_aborted", lambda log, offset, found: [])


def write_no_markers(patch: pytest.MonkeyPatch) -> None:
    """A coordinator takes the other brokers' markers for written."""

    async def write(self: Any, marker: Any, partitions: Any) -> dict[Any, Any]:
        return {}

    patch.setattr(RemoteTransactions, "write", write)


def hand_over_early(patch: pytest.MonkeyPatch) -> None:
    """A leader does not wait until another host has copied the end of a log."""
    patch.setattr(Followers, "_has_all", lambda self, log, node_id: True)


def take_copies_for_complete(patch: pytest.MonkeyPatch) -> None:
    """A leader takes each copy for complete."""
    note = Followers.note

    def complete(self: Any, log: Any, node_id: int, copy_number: int, offset: int) -> Any:
        return note(self, log, node_id, copy_number, log.log_end_offset)

    patch.setattr(Followers, "note", complete)


@pytest.mark.parametrize(
    ("mistake", "problem"),
    [
        (serve_without_session, "sessions: broker . appends"),
        (change_without_session, "sessions: broker . made change"),
        (skip_changes, "metadata: topic|stuck"),
        (sync_no_log, "lost: "),
        (forget_sequences, "twice: "),
        (forget_aborted, "aborted: "),
        (hand_over_early, "lost: "),
        (take_copies_for_complete, "lost: |stuck"),
        (write_no_markers, "stuck: the final reads|atomic: "),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_mistake_is_found(
    mistake: Break, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    for seed in SEEDS:
        path = tmp_path / str(seed)
        path.mkdir()
        if any(re.match(problem, one) for one in run(seed, path).problems):
            return
    raise AssertionError(f"no seed has found it: {mistake.__doc__}")
