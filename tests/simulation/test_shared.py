"""Shared topics through troubles that seeds draw.

A failure is had again by its seed: pytest -k "test_shared_topics_keep_their_promises and 7".
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog import membership, wal_backend
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.catalog.wal_rows import NewRow
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared import janitor
from odradek.broker.shared.building import Builder
from odradek.broker.wal.wal import Wal
from odradek.storage.log import Log
from odradek.storage.readable_log import ReadableLog
from tests.fuzz.seeds import FIRST_SEED, SHARED
from tests.simulation.cluster import movers
from tests.simulation.shared.run import SharedNemesis, run

pytestmark = pytest.mark.usefixtures("quiet_logs")

SEEDS = range(6)
# The long form runs in so many parts.
_GROUPS = 20
# A mistake is found within so many seeds, most of them by the first ones.
_TRIES = 30
Break = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("seed", SEEDS)
def test_shared_topics_keep_their_promises(seed: int, tmp_path: Path) -> None:
    survey = run(seed, tmp_path)
    assert not survey.problems, "\n".join([f"seed={seed}", *survey.problems])
    assert survey.counts["acknowledged"]
    assert survey.counts["read"]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("group", range(_GROUPS))
def test_many_histories_keep_their_promises(group: int, tmp_path: Path) -> None:
    """It is the long form: FUZZ_SHARED histories from the seed FUZZ_SEED on."""
    seeds = range(FIRST_SEED + group, FIRST_SEED + SHARED, _GROUPS)
    for count, seed in enumerate(seeds):
        path = tmp_path / str(seed)
        path.mkdir()
        problems = run(seed, path).problems
        assert not problems, "\n".join([f"seed={seed}, after {count} histories", *problems])
        shutil.rmtree(path)
    print(f"histories={len(seeds)}")


def test_a_seed_always_gives_the_same_history(tmp_path: Path) -> None:
    histories = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        survey = run(3, tmp_path / name)
        found = survey.history
        histories.append((found.appends, found.reads, found.led, found.catalog_changes))
        assert survey.counts["deleted"]
        assert survey.counts["compacted"]
        assert survey.counts["merges"]
    assert histories[0] == histories[1]


# --- the checks can fail: mistakes that are found within a few seeds ---------------------------


def acknowledge_early(patch: pytest.MonkeyPatch) -> None:
    """The WAL says that all is committed at once."""

    def committed(self: Wal) -> Any:
        done = self._loop.create_future()
        done.set_result(None)
        return done

    patch.setattr(Wal, "committed", committed)


def commit_without_session(patch: pytest.MonkeyPatch) -> None:
    """The catalog takes entries of a closed session."""

    def commit(
        connection: Connection, session: int, first: int, entries: Sequence[NewRow]
    ) -> None:
        connection.execute_many(
            "INSERT INTO wal_entry (session, sequence, size_bytes, runs, body)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            [
                (session, sequence, one.size_bytes, one.runs, one.body)
                for sequence, one in enumerate(entries, first)
            ],
        )

    patch.setattr(wal_backend, "commit_entries", commit)


def forget_producers(patch: pytest.MonkeyPatch) -> None:
    """A log that was built does not know its producers, but for open transactions."""
    finish = Builder.finish

    def forgetful(
        self: Builder, wanted: Any, built: dict[Partition, Log], stored: Any, now_ms: int
    ) -> None:
        finish(self, wanted, built, stored, now_ms)
        for log in built.values():
            for one in [one for one in log.producers if one.transaction_first_offset < 0]:
                del log.producers._producers[one.producer_id]

    patch.setattr(Builder, "finish", forgetful)


def show_the_end(patch: pytest.MonkeyPatch) -> None:
    """Consumers read up to the log's end."""
    patch.setattr(ReadableLog, "high_watermark", property(lambda log: log.log_end_offset))


def delete_what_is_named(patch: pytest.MonkeyPatch) -> None:
    """An object is deleted once some row has ceased to name it."""

    def due(connection: Connection, engine: Any, age_ms: int, count_max: int) -> list[str]:
        keys = connection.execute("SELECT key FROM garbage ORDER BY key LIMIT ?", (count_max,))
        return [key for (key,) in keys]

    patch.setattr(janitor, "due_garbage", due)


def forget_handovers(patch: pytest.MonkeyPatch) -> None:
    """A broker leads partitions again before it knows the outcome of a handover.

    Partitions move often, the catalog loses answers, and brokers follow it late: the two lead at
    the same time only if all of this meets.
    """

    async def wait(self: CatalogStore) -> None:
        pass

    patch.setattr(CatalogStore, "wait_for_changes", wait)
    patch.setattr(membership, "_FOLLOW_S", 1.0)
    patch.setattr(movers, "_PAUSE_S", 0.15)
    patch.setattr(SharedNemesis, "steps", lambda self: {self.spoil_catalog: 1})


@pytest.mark.parametrize(
    ("mistake", "problem"),
    [
        (acknowledge_early, "lost: "),
        (commit_without_session, "fence: "),
        (forget_producers, "twice: |order: "),
        (show_the_end, "unstable: "),
        (delete_what_is_named, "garbage: "),
        (forget_handovers, "leaders: |fence: |stuck: "),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_mistake_is_found(
    mistake: Break, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    for seed in range(_TRIES):
        path = tmp_path / str(seed)
        path.mkdir()
        if any(re.match(problem, one) for one in run(seed, path).problems):
            print(f"found by seed={seed}")
            return
    raise AssertionError(f"no seed has found it: {mistake.__doc__}")
