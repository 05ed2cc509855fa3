"""The WAL: a record that is acknowledged is in the catalog and the bucket, at its offset, once."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.wal import begin_session
from odradek.broker.catalog.engines import Engine, open_engine
from odradek.broker.catalog.sessions import SessionClosed, close_session
from odradek.broker.catalog.wal_rows import (
    EntryRow,
    NewRow,
    commit_entries,
    entry_bodies,
    entry_rows,
    object_key,
)
from odradek.broker.ids import Partition
from odradek.broker.wal.wal import WalLost
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.simulation.wal_world import LIMITS, World

KEYS = [(bytes([topic]) * 16, number) for topic in (1, 2) for number in range(3)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    yield World(1, tmp_path)


def rows_of(engine: Engine) -> list[EntryRow]:
    return engine.read(lambda connection: entry_rows(connection, -1, 100_000))


async def write(world: World, appends: int) -> list[asyncio.Future[None]]:
    """Append in bursts with pauses, to one partition after another."""
    answers = []
    source = world.source
    for _ in range(appends):
        for _ in range(source.randint(1, 3)):
            key = source.choice(KEYS)
            world.append(key, source.choice((1, 50, 400, 2_000)))
        answer, ends = world.wal.committed(), dict(world.ends)
        answer.add_done_callback(lambda done, ends=ends: check(world, done, ends))
        answers.append(answer)
        await asyncio.sleep(source.choice((0, 0.001, 0.01, 0.1)))
    return answers


def check(world: World, answer: asyncio.Future[None], ends: dict[Partition, int]) -> None:
    """Note the partitions that are acknowledged without a commit at that moment."""
    if answer.exception() is None:
        committed = world.ends_committed()
        world.too_early |= {key for key, end in ends.items() if committed.get(key, 0) < end}


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    fault_rate=st.sampled_from((0.0, 0.05, 0.3)),
    is_expelled=st.booleans(),
)
def test_all_that_is_acknowledged_is_committed_in_order(
    seed: int, fault_rate: float, is_expelled: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(seed, Path(folder), fault_rate)

        async def work() -> None:
            if is_expelled:
                world.loop.call_later(world.source.random(), world.expel)
            try:
                answers = await write(world, 30)
            except WalLost:
                assert is_expelled
                return
            outcomes = await asyncio.gather(*answers, return_exceptions=True)
            lost = [one for one in outcomes if one is not None]
            assert all(isinstance(one, WalLost) for one in lost)
            assert is_expelled or not lost
            if not lost:
                assert world.wal.pending_bytes == 0
                assert world.ends_committed() == world.ends

        async def read_back() -> None:
            read.update(await world.read(dict.fromkeys(KEYS, 0)))

        read: dict[Partition, bytes] = {}
        world.run(work, read_back)
        assert not world.too_early
        rows = world.rows()
        assert [row.sequence for row in rows] == list(range(len(rows)))
        ends = world.ends_committed()
        assert read.keys() == ends.keys()
        for key, end in ends.items():
            count = next(at for at, begin in enumerate(world.begins[key]) if begin == end)
            assert read[key] == b"".join(world.added[key][:count])
            assert world.readable[key] <= end <= world.ends[key]


def test_a_single_record_waits_for_nothing(world: World) -> None:
    async def work() -> None:
        for _ in range(20):
            world.append(KEYS[0], 100)
            begun_s = world.loop.time()
            await world.wal.committed()
            times_s.append(world.loop.time() - begun_s)

    times_s: list[float] = []
    world.run(work)
    assert world.backend.uploads == 0
    assert max(times_s) < LIMITS.linger_s  # of commits that take 3 ms on the average
    assert len(world.rows()) == 20


def test_a_trickle_over_many_partitions_keeps_to_its_budget(tmp_path: Path) -> None:
    world = World(2, tmp_path, limits=replace(LIMITS, entry_bytes_max=1 << 20, puts_per_s=2))
    duration_s = 30

    async def work() -> None:
        answers = []
        end_s = world.loop.time() + duration_s
        while world.loop.time() < end_s:
            for number in range(100):
                world.append((b"t" * 16, number), 20)
            answers.append(world.wal.committed())
            await asyncio.sleep(0.05)
        await asyncio.gather(*answers)

    world.run(work)
    size_bytes = sum(len(batch) for batches in world.added.values() for batch in batches)
    paid = size_bytes / LIMITS.worth_bytes
    assert duration_s < world.backend.uploads <= 2 * duration_s + 3 + paid


def test_a_producer_that_waits_for_its_batches_is_not_slowed_down(tmp_path: Path) -> None:
    limits = replace(LIMITS, entry_bytes_max=1 << 20, puts_per_s=2, worth_bytes=2_000)
    world = World(4, tmp_path, limits=limits)

    async def work() -> None:
        begun_s = world.loop.time()
        for _ in range(50):
            for number in range(3):
                world.append(KEYS[number], 1_000)
            await world.wal.committed()
        times_s.append(world.loop.time() - begun_s)

    times_s: list[float] = []
    world.run(work)
    assert world.backend.uploads == 50
    assert times_s[0] < 10


@pytest.mark.parametrize("puts_per_s", range(3, 10))
def test_a_producer_that_does_not_wait_keeps_to_the_budget(
    tmp_path: Path, puts_per_s: int
) -> None:
    """Its records come in bursts, as those of a client that lingers for 5 ms."""
    limits = replace(
        LIMITS, entry_bytes_max=400_000, puts_per_s=puts_per_s, worth_bytes=25_000
    )
    world = World(6, tmp_path, limits=limits)
    duration_s = 20

    async def work() -> None:
        answers = []
        for _ in range(duration_s * 100):
            for key in KEYS[:3]:
                world.append(key, 2_000)
            answers.append(world.wal.committed())
            await asyncio.sleep(world.source.uniform(0.005, 0.015))
        await asyncio.gather(*answers)

    world.run(work)
    assert world.backend.uploads <= 1.2 * limits.puts_per_s * duration_s


def test_a_small_entry_waits_no_longer_after_many_full_ones(tmp_path: Path) -> None:
    world = World(5, tmp_path, limits=replace(LIMITS, puts_per_s=2))

    async def work() -> None:
        while world.backend.uploads < 30:
            world.append(KEYS[1], 4_000)
            await asyncio.sleep(0.02)
        await world.wal.committed()
        world.append(KEYS[0], 400)
        begun_s = world.loop.time()
        await world.wal.committed()
        times_s.append(world.loop.time() - begun_s)

    times_s: list[float] = []
    world.run(work)
    assert times_s[0] < 2


def test_uploads_overlap_and_are_bounded(tmp_path: Path) -> None:
    world = World(3, tmp_path)

    async def work() -> None:
        for number in range(300):
            world.append(KEYS[number % 6], 2_000)
            await asyncio.sleep(0.002)
        await world.wal.committed()

    world.run(work)
    assert 1 < world.backend.under_way_max <= LIMITS.uploads_max


async def learn(world: World) -> None:
    """Upload so often that a slow upload is known as one."""
    while world.backend.uploads < 40:
        world.append(KEYS[1], 2_000)
        await world.wal.committed()


def test_an_entry_whose_upload_hangs_is_committed_without_its_object(tmp_path: Path) -> None:
    world = World(7, tmp_path)

    async def work() -> None:
        await learn(world)
        world.backend.hanging = asyncio.Event()
        for key in KEYS[:2]:
            world.append(key, 2_000)
            begun_s = world.loop.time()
            await world.wal.committed()
            times_s.append(world.loop.time() - begun_s)
        world.backend.hanging.set()
        await asyncio.sleep(10)

    times_s: list[float] = []
    world.run(work)
    assert max(times_s) < 1
    rows = world.rows()
    assert [one.is_inline for one in rows[-2:]] == [True, True]
    keys = {one.key for one in world.store.list_objects("wal/")}
    assert keys == {
        object_key(one.session, one.sequence) for one in rows if not one.is_inline
    }


@pytest.mark.parametrize("slow_bytes_per_s", [0, 3_000])
def test_the_catalog_gets_no_more_of_slow_uploads_than_it_may(
    tmp_path: Path, slow_bytes_per_s: int
) -> None:
    limits = replace(LIMITS, slow_bytes_per_s=slow_bytes_per_s, uploads_max=100)
    world, duration_s = World(8, tmp_path, limits=limits), 20

    async def work() -> None:
        await learn(world)
        before = world.wal._counts.inline_bytes
        world.backend.hanging = asyncio.Event()
        for _ in range(duration_s):
            world.append(KEYS[0], 3_900)
            await asyncio.sleep(1)
        inline_bytes.append(world.wal._counts.inline_bytes - before)
        world.backend.hanging.set()
        await world.wal.committed()

    inline_bytes: list[int] = []
    world.run(work)
    at_once = 2 * limits.entry_bytes_max if slow_bytes_per_s else 0
    assert inline_bytes[0] <= at_once + duration_s * slow_bytes_per_s
    assert inline_bytes[0] >= duration_s * slow_bytes_per_s / 2
    assert world.ends_committed() == world.ends


def test_a_failure_is_known_while_it_lasts(world: World) -> None:
    async def work() -> None:
        (world.path / "bucket").rename(world.path / "elsewhere")
        (world.path / "bucket").write_bytes(b"")  # no folder: each PUT fails
        world.append(KEYS[0], 2_000)
        answer = world.wal.committed()
        await asyncio.sleep(1)
        assert world.wal.failure is not None
        assert not answer.done()
        assert world.wal.pending_bytes == 2_000
        (world.path / "bucket").unlink()
        (world.path / "elsewhere").rename(world.path / "bucket")
        await answer
        assert world.wal.failure is None

    world.run(work)


def test_a_commit_races_the_end_of_its_session_and_one_of_them_is_first(
    catalog_url: str,
) -> None:
    """After the session's end is committed no entry is added, on each engine."""
    first = open_engine(catalog_url)
    for _ in range(20):
        session = begin_session(first)
        committed: list[int] = []
        begun = threading.Event()

        def commit(
            session: int = session,
            committed: list[int] = committed,
            begun: threading.Event = begun,
        ) -> None:
            engine = open_engine(catalog_url)
            row = NewRow(1, b"", b"x")
            for sequence in itertools.count():
                try:
                    engine.touch(lambda to: commit_entries(to, session, sequence, [row]))  # noqa: B023
                except SessionClosed:
                    break
                committed.append(sequence)
                begun.set()
            engine.close()

        thread = threading.Thread(target=commit)
        thread.start()
        assert begun.wait(30)
        first.transact(lambda to: close_session(to, first, session))  # noqa: B023
        seen = [one for one in rows_of(first) if one.session == session]
        thread.join()
        assert [one.sequence for one in seen] == committed
    first.close()


def test_a_repeated_commit_adds_nothing_and_a_gap_is_refused(catalog_url: str) -> None:
    engine = open_engine(catalog_url)
    session = begin_session(engine)
    rows = [NewRow(1, b"", b"x"), NewRow(2, b"", None)]
    for _ in range(3):
        engine.touch(lambda to: commit_entries(to, session, 0, rows))
    found = [(one.sequence, one.size_bytes, one.is_inline) for one in rows_of(engine)]
    assert found == [(0, 1, True), (1, 2, False)]
    first = [one.place for one in rows_of(engine)][:1]
    assert engine.read(lambda to: entry_bodies(to, first)) == {first[0]: b"x"}
    for first in (0, 3):
        with pytest.raises(SessionClosed):
            engine.touch(lambda to: commit_entries(to, session, first, rows[:1]))  # noqa: B023
    assert len(rows_of(engine)) == 2
    engine.close()
