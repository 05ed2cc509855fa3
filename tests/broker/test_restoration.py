"""A restore of a bucket that lacks objects: each log keeps a part that can be served."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.restoring import SESSIONS_SKIPPED, Kept
from odradek.broker.catalog.wal_rows import object_key
from odradek.broker.errors import MetadataError
from odradek.broker.shared.checking import Problem
from odradek.broker.shared.restoration import Restoration
from odradek.broker.wal.entries import read_index
from odradek.storage.objects.opening import open_store
from tests.broker.catalogs import let_leases_end
from tests.broker.filled_bucket import SETTINGS, Place, fill, sequenced
from tests.broker.live import client, on_uvloop, until
from tests.broker.test_shared_segments import Read, log_of, records
from tests.broker.test_shared_topics import cluster, leader_of, produce
from tests.cli.commands import Commands
from tests.support.requests import producing

BOTH = 6
"""Requests with a batch for each of both partitions, after those of `fill`."""
COMMANDS = Commands("127.0.0.1:1")  # no broker is asked


class Filled:
    """A bucket and its catalog, of which each case gets a copy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read: dict[int, list[Read]] = {}
        self.number = 0

    @on_uvloop
    async def make(self) -> None:
        async with cluster(self.path, f"sqlite://{self.path / 'catalog.db'}", 1, SETTINGS) as (
            one,
        ):
            await fill([one])
            async with client(one) as there:
                for at in range(BOTH):
                    size = 90 if at % 3 else 5
                    ends = [log_of(one, number).log_end_offset for number in (0, 1)]
                    batches = {n: sequenced(end, size) for n, end in enumerate(ends)}
                    answer = await there.ask(producing("t", batches), version=9)
                    parts = answer.responses[0].partition_responses
                    assert [part.error_code for part in parts] == [0, 0]
            self.read = {number: await records(one, number) for number in (0, 1)}

    def copy(self) -> Place:
        self.number += 1
        path = self.path / f"case-{self.number}"
        shutil.copytree(self.path / "bucket", path / "bucket")
        shutil.copy(self.path / "catalog.db", path)
        made = Place(path / "bucket", open_engine(f"sqlite://{path / 'catalog.db'}"))
        let_leases_end(made.engine)
        return made


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    made = Filled(tmp_path_factory.mktemp("filled"))
    made.make()  # type: ignore[call-arg]
    return made


@pytest.fixture
def there(filled: Filled) -> Iterator[Place]:
    made = filled.copy()
    yield made
    made.engine.close()


def restored(there: Place) -> tuple[list[Problem], dict[int, Kept]]:
    """Restore all that there is; return the problems, and the offsets of logs that were cut."""
    with ThreadPoolExecutor(2) as threads:
        store = open_store(f"file://{there.path}")
        one = Restoration(there.engine, store, threads, is_quick=False)
        problems = list(one.problems())
        one.apply("r")
        return problems, {number: cut.kept for (_, number), cut in one.cuts.items()}


def entry_objects(there: Place) -> dict[str, int]:
    """Return the number of runs of each entry that is an object."""
    rows = there.run("SELECT session, sequence, runs FROM wal_entry WHERE body IS NULL")
    return {object_key(*key): len(read_index(bytes(runs))) for *key, runs in rows}


@on_uvloop
async def serve(there: Place, kept: dict[int, Kept], read: dict[int, list[Read]]) -> None:
    """Prove that a broker serves all that was kept, and goes on."""
    url = f"sqlite://{there.path.parent / 'catalog.db'}"
    async with cluster(there.path.parent, url, 1, SETTINGS) as (one,):
        for number, before in read.items():
            leader = await until(lambda number=number: leader_of([one], number))
            first, end = kept.get(number, Kept(0, before[-1][0] + 1))
            wanted = [record for record in before if first <= record[0] < end]
            assert await records(leader, number) == wanted
            answer = await produce(leader, sequenced(end, 10), number)
            assert (answer.error_code, answer.base_offset) == (0, end)
            assert [at for at, *_ in await records(leader, number)][-1] == end
    assert not there.check()[1].faults


def test_the_bucket_has_entries_of_both_partitions(there: Place) -> None:
    assert 2 in entry_objects(there).values()
    inline = there.run("SELECT runs FROM wal_entry WHERE body IS NOT NULL")
    assert 2 in [len(read_index(bytes(runs))) for (runs,) in inline]


def test_nothing_is_cut_from_an_intact_bucket(filled: Filled, there: Place) -> None:
    assert restored(there) == ([], {})
    serve(there, {}, filled.read)  # type: ignore[call-arg]


@pytest.mark.slow
def test_logs_without_an_object_are_served_after_a_restore(filled: Filled) -> None:
    """Whichever object is missing; then each two of them."""
    first = filled.copy()
    named = sorted({key for (key,) in first.run("SELECT key FROM segment")})
    named += sorted(entry_objects(first))
    assert len(named) > 8
    pairs = [(named[0], named[-1]), *zip(named, named[2:], strict=False)]
    seen, stored_again = set(), set[bool]()
    for keys in [*((one,) for one in named), *pairs]:
        there = filled.copy()
        for key in keys:
            (there.path / key).unlink()
        problems, kept = restored(there)
        assert {one.key for one in problems} == set(keys)
        lost = [one for one in problems if one.lost == "these records"]
        assert {one.partition for one in lost} == kept.keys()
        for one in lost:
            assert one.offsets is not None
            begin, end = kept[one.partition]
            assert one.offsets[1] <= begin or end <= one.offsets[0]
        seen |= {(begin > 0, end <= filled.read[number][-1][0])
                 for number, (begin, end) in kept.items()}  # fmt: skip
        assert there.check()[0] == []
        entries = "SELECT body IS NULL FROM wal_entry WHERE session > ?"
        stored_again |= {bool(is_object) for (is_object,) in there.run(entries, SESSIONS_SKIPPED)}
        serve(there, kept, filled.read)  # type: ignore[call-arg]
        there.engine.close()
        shutil.rmtree(there.path.parent)
    assert seen == {(True, False), (False, True), (True, True)}
    assert stored_again == {True, False}


def test_a_lost_row_of_the_wal_cuts_as_a_lost_object(filled: Filled, there: Place) -> None:
    later: set[int] = set()
    found = []
    stored = dict(there.run("SELECT number, stored_offset FROM partition"))
    for place, runs in there.run("SELECT place, runs FROM wal_entry ORDER BY place DESC"):
        own = {run.partition[1]: run.next_offset for run in read_index(bytes(runs))}
        needed = {number for number, end in own.items() if end > stored[number]}
        if needed & later == {0, 1}:
            found.append(place)
        later |= own.keys()
    there.run("DELETE FROM wal_entry WHERE place = ?", found[0])
    _, kept = restored(there)
    assert kept.keys() == {0, 1}
    assert not there.check()[1].faults
    serve(there, kept, filled.read)  # type: ignore[call-arg]


def test_deleted_records_that_a_log_is_built_from_may_be_lost(
    filled: Filled, there: Place
) -> None:
    """They are below the log start offset, and only the WAL has them."""
    (stored,) = there.run("SELECT stored_offset FROM partition WHERE number = 1")[0]
    rows = there.run(
        "SELECT session, sequence, runs FROM wal_entry WHERE body IS NULL ORDER BY place"
    )
    key, lost = next(
        (object_key(*place), run)
        for *place, runs in rows
        for run in read_index(bytes(runs))
        if run.partition[1] == 1 and run.base_offset > stored
    )
    (there.path / key).unlink()
    start = lost.next_offset + 1
    there.run("UPDATE partition SET log_start_offset = ? WHERE number = 1", start)
    _, kept = restored(there)
    _, end = kept[1]
    assert kept[1].first == lost.next_offset
    assert there.run("SELECT log_start_offset FROM partition WHERE number = 1") == [(start,)]
    read = {**filled.read, 1: [one for one in filled.read[1] if start <= one[0] < end]}
    serve(there, kept, read)  # type: ignore[call-arg]


def test_a_log_that_lost_everything_continues_after_its_end(
    filled: Filled, there: Place
) -> None:
    shutil.rmtree(there.path / "segments")
    shutil.rmtree(there.path / "wal")
    there.run("DELETE FROM wal_entry")
    _, kept = restored(there)
    for number, (first, end) in kept.items():
        ((stored,),) = there.run("SELECT stored_offset FROM partition WHERE number = ?", number)
        assert first == end == stored
    serve(there, kept, filled.read)  # type: ignore[call-arg]


def test_damage_that_loses_no_record_cuts_nothing(filled: Filled, there: Place) -> None:
    ((key,),) = there.run("SELECT key FROM segment ORDER BY key LIMIT 1")
    with there.flipped(key, (there.path / key).stat().st_size - 1):
        problems, kept = restored(there)
        assert ([one.key for one in problems], kept) == ([key], {})


def test_a_copy_with_an_entry_that_cannot_be_read_is_refused(there: Place) -> None:
    last = "(SELECT max(place) FROM wal_entry)"
    there.run(f"UPDATE wal_entry SET runs = ? WHERE place = {last}", b"x")
    with pytest.raises(MetadataError, match="an entry of its WAL cannot be read"):
        restored(there)


def given(there: Place, *arguments: str) -> tuple[str, ...]:
    folder = there.path.parent
    bucket = f"odradek.object.store.url=file://{there.path}"
    catalog = f"sqlite://{folder / 'catalog.db'}"
    return ("cluster", "restore", "--catalog", catalog, "--set", bucket, *arguments)


def test_the_command_gives_records_up_on_demand_only(there: Place) -> None:
    ((key, base, end),) = there.run(
        "SELECT key, base_offset, next_offset FROM segment WHERE number = 0"
        " ORDER BY base_offset LIMIT 1"
    )
    (there.path / key).unlink()
    for arguments in ((), ("--apply",), ("--full", "--apply")):
        found = COMMANDS.run(*given(there, *arguments))
        assert found.exit_code == 1
        assert f"t-0, offsets {base} to {end - 1}, {key}: the object is missing" in found.stdout
        assert f"t-0 gives up the offsets 0 to {end - 1}, and keeps {end} to " in found.stdout
        assert "lost records: bring the objects back" in found.stderr
    before = there.run("SELECT * FROM revision")
    shown = COMMANDS.shown(*given(there, "--accept-loss"))
    assert shown.endswith("Nothing is changed yet: --apply does it.\n")
    assert there.run("SELECT * FROM revision") == before
    assert COMMANDS.shown(*given(there, "--accept-loss", "--apply")).endswith(
        "Restored: start the brokers.\n"
    )
    assert COMMANDS.shown("cluster", "fsck", *given(there)[2:]).startswith("No problem in ")
    assert "No session is open." in COMMANDS.shown(*given(there))


def test_the_command_refuses_a_catalog_in_use(there: Place) -> None:
    assert "odradek.object.store.url" in COMMANDS.refusal(*given(there)[:4])
    clock, now_ms = there.engine.read(lambda to: there.engine.clock(to))
    there.run("UPDATE session SET clock = ?, expires_at_ms = ?, closed_at_ms = NULL",
              clock, now_ms + 60_000)  # fmt: skip
    refused = COMMANDS.refusal(*given(there))
    assert "of broker 1: stop all brokers. If none runs, the copy is that fresh" in refused
