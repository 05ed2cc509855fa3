"""The check of bucket and catalog: damage is found and named, and brokers at work are none."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.segment_rows import exchange_segments
from odradek.broker.catalog.wal_rows import object_key
from odradek.broker.shared import exchanging
from odradek.broker.wal.entries import Run, read_index
from odradek.storage.objects.opening import open_store
from odradek.storage.objects.packs import EPOCHS, PackedSegment, read_pack_index
from odradek.storage.segment import INDEX, LOG, SNAPSHOT, TIME_INDEX
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.filled_bucket import PARTITIONS, SETTINGS, Place, fill
from tests.broker.live import client, create, on_uvloop, until
from tests.broker.test_cluster import known_everywhere
from tests.broker.test_shared_segments import SMALL, free, keyed
from tests.broker.test_shared_topics import cluster, leader_of
from tests.support.requests import producing

Found = tuple[str, int, tuple[int, int] | None, str]


def place(path: Path, url: str) -> Place:
    return Place(path / "bucket", open_engine(url))


@pytest.fixture
def filled(tmp_path: Path, catalog_url: str) -> Iterator[Place]:
    """Fill a bucket; its brokers have stopped."""

    @on_uvloop
    async def run() -> None:
        async with cluster(tmp_path, catalog_url, 2, SETTINGS) as brokers:
            await fill(brokers)

    run()
    made = place(tmp_path, catalog_url)
    yield made
    made.engine.close()


def segments(there: Place) -> list[tuple[str, PackedSegment]]:
    rows = there.run(
        "SELECT key, topic_id, number, base_offset, next_offset, position, files FROM segment"
        " ORDER BY topic_id, number, base_offset"
    )
    return [
        (key, PackedSegment.of_table((bytes(topic_id), number), base, end, position, files))
        for key, topic_id, number, base, end, position, files in rows
    ]


def found_at(key: str, segment: PackedSegment) -> Found:
    """Return the place of a problem with a segment."""
    return "t", segment.partition[1], (segment.base_offset, segment.next_offset), key


def lines(there: Place, *, is_quick: bool = False) -> set[Found]:
    """Return the places of the problems."""
    return {
        (one.topic, one.partition, one.offsets, one.key)
        for one in there.check(is_quick=is_quick)[0]
    }


def entries(there: Place) -> list[tuple[int, str, bool, Run]]:
    rows = there.run("SELECT place, session, sequence, body IS NULL, runs FROM wal_entry")
    found = []
    for at, session, sequence, is_object, runs in sorted(rows):
        (run,) = read_index(bytes(runs))
        found.append((at, object_key(session, sequence), bool(is_object), run))
    return found


def test_a_filled_cluster_is_intact(filled: Place) -> None:
    problems, check = filled.check()
    assert problems == []
    assert check.partitions == PARTITIONS
    assert check.segments == len(segments(filled)) > 2 * PARTITIONS
    assert filled.run("SELECT count(*) FROM segment WHERE is_open = 1") != [(0,)]
    assert (check.entries - check.inline > 0, check.inline > 0) == (True, True)
    assert (check.uploads, check.foreign, check.young) == (0, 0, 0)
    assert filled.check(is_quick=True)[0] == []
    noted = {key for (key,) in filled.run("SELECT key FROM garbage")}
    named = {key for key, _ in segments(filled)}
    named |= {key for _, key, is_object, _ in entries(filled) if is_object}
    assert named | noted == filled.keys()
    sizes = filled.objects()
    assert check.checked_bytes == sum(sizes[key] for key in named)


def test_damaged_objects_of_segments_are_named(filled: Place) -> None:
    kinds, store = set(), open_store(f"file://{filled.path}")
    shapes = set()
    for key, one in segments(filled):
        found = {found_at(key, one)}
        both = {found_at(key, other) for its, other in segments(filled) if its == key}
        # The files that it has, and its place in a pack of some length: one of each is enough.
        files = frozenset(kind for kind, file in one.files.items() if file.size_bytes)
        place = sorted(both, key=str).index(found_at(key, one)), len(both)
        shape = files, place, len(read_pack_index(store, key)), one.partition[1]
        if shape in shapes:
            continue
        shapes.add(shape)
        content = (filled.path / key).read_bytes()
        with filled.changed(key, None):
            assert lines(filled) == lines(filled, is_quick=True) == both
        with filled.changed(key, content[: one.files[LOG].position + 1]):
            after = {at for at in both if at[1:3] >= next(iter(found))[1:3]}
            assert lines(filled) == lines(filled, is_quick=True) == after
        is_all_named = len(read_pack_index(store, key)) == len(both)
        with filled.changed(key, content[:-1]):
            assert lines(filled) == {("", -1, None, key)}
            if is_all_named:  # else the rows do not say how large the object is
                assert lines(filled, is_quick=True) == {("", -1, None, key)}
        for position in (len(content) - 1, len(content) - 30):
            with filled.flipped(key, position):
                assert lines(filled) == {("", -1, None, key)}
                assert lines(filled, is_quick=True) == set()
        for kind, file in one.files.items():
            if file.size_bytes:
                kinds.add(kind)
                with filled.flipped(key, file.position + file.size_bytes - 1):
                    (problem,) = filled.check()[0]
                    assert kind in problem.wrong
                    assert ("but no record" in problem.lost) == (kind != LOG)
                    assert lines(filled) == found
    assert kinds >= {LOG, INDEX, TIME_INDEX, SNAPSHOT, EPOCHS}
    assert lines(filled) == set()


def test_lost_rows_of_segments_are_gaps(filled: Place) -> None:
    keys = [key for key, _ in segments(filled)]
    noted = {key for (key,) in filled.run("SELECT key FROM garbage")}
    for key, one in segments(filled):
        found: set[Found] = {found_at("", one)}
        if keys.count(key) == 1 and key not in noted:
            found.add(("", -1, None, key))
        mine = "topic_id = ? AND number = ? AND base_offset = ?"
        with filled.removed("segment", mine, *one.partition, one.base_offset):
            assert lines(filled) == found
    assert lines(filled) == set()


def test_damaged_entries_of_the_wal_are_named(filled: Place) -> None:
    seen = set()
    for at, key, is_object, run in entries(filled):
        seen.add(is_object)
        offsets = (run.base_offset, run.next_offset)
        found = {("t", run.partition[1], offsets, key if is_object else f"entry {at} of the WAL")}
        if is_object:
            content = (filled.path / key).read_bytes()
            with filled.changed(key, None):
                assert lines(filled) == lines(filled, is_quick=True) == found
            with filled.changed(key, content[:-1]):
                assert lines(filled) == lines(filled, is_quick=True) == {("", -1, None, key)}
            with filled.changed(key, content[: run.size_bytes - 1]):
                assert lines(filled) == lines(filled, is_quick=True) == found
            with filled.flipped(key, 0):
                assert lines(filled) == found
            for position in (len(content) - 1, run.size_bytes):
                with filled.flipped(key, position):
                    assert lines(filled) == {("", -1, None, key)}
        else:
            ((body,),) = filled.run("SELECT body FROM wal_entry WHERE place = ?", at)
            flipped = bytes([body[0] ^ 1]) + bytes(body)[1:]
            filled.run("UPDATE wal_entry SET body = ? WHERE place = ?", flipped, at)
            assert lines(filled) == lines(filled, is_quick=True) == found
            filled.run("UPDATE wal_entry SET body = ? WHERE place = ?", bytes(body), at)
    assert seen == {True, False}
    assert lines(filled) == set()


def test_lost_rows_of_the_wal_are_gaps(filled: Place) -> None:
    """All but the last one of a partition, after which nothing shows that there was more."""
    every = entries(filled)
    for number in range(PARTITIONS):
        stored = max(one.next_offset for _, one in segments(filled) if one.partition[1] == number)
        mine = [one for one in every if one[3].partition[1] == number]
        for at, key, is_object, run in mine[:-1]:
            found: set[Found] = {("", -1, None, key)} if is_object else set()
            if run.next_offset > stored:
                found.add(("t", number, (max(run.base_offset, stored), run.next_offset), ""))
            with filled.removed("wal_entry", "place = ?", at):
                assert lines(filled) == found
    assert lines(filled) == set()


def test_damage_of_entries_that_segments_have_loses_nothing(filled: Place) -> None:
    filled.run("UPDATE partition SET log_start_offset = 1000 WHERE number = 0")
    for _, key, is_object, run in entries(filled):
        if is_object:
            with filled.changed(key, None):
                (problem,) = filled.check()[0]
                assert ("no record" in problem.lost) == (run.partition[1] == 0)


def test_orphans_are_found_and_deleted_once_they_are_old(filled: Place) -> None:
    now_ms = int(time.time() * 1000)
    ((last,),) = filled.run("SELECT max(epoch) FROM session")
    orphans = {f"segments/{last:010d}/000000009999", f"wal/{last:010d}/000000009999", "probe/a/b"}
    unknown = f"segments/{last + 1:010d}/000000000000"
    before = filled.objects()
    for key in (*orphans, unknown, "some/body/else"):
        (filled.path / key).parent.mkdir(parents=True, exist_ok=True)
        (filled.path / key).write_bytes(b"abc")
    problems, check = filled.check()
    assert {one.key for one in problems} == {*orphans, unknown}
    assert (check.foreign, check.faults, len(check.orphans)) == (1, 1, 3)
    problems, check = filled.check(orphans_before_ms=now_ms - 60_000)
    assert {one.key for one in problems} == {unknown}
    assert (check.young, check.young_bytes, check.orphans) == (3, 9, [])
    (filled.path / unknown).unlink()
    problems, check = filled.check()
    # One of them gets a note after it was found.
    noted = f"segments/{last:010d}/000000009999"
    filled.run("INSERT INTO garbage (key, noted_ms, size_bytes) VALUES (?, 1, 3)", noted)
    check.delete_orphans()
    assert filled.objects().keys() == {*before, noted, "some/body/else"}
    assert filled.check()[0] == []


@on_uvloop
async def test_uploads_under_way_are_no_orphans(tmp_path: Path, catalog_url: str) -> None:
    async with cluster(tmp_path, catalog_url, 1, SETTINGS) as (one,):
        await fill([one])
        there = place(tmp_path, catalog_url)
        for key in ("segments/0000000001/000000009999", "wal/0000000001/000000009999"):
            (there.path / key).write_bytes(b"abc")
        problems, check = await asyncio.to_thread(there.check)
        assert problems == []
        assert (check.uploads, check.upload_bytes, check.orphans) == (2, 6, [])
    problems, check = there.check()
    assert {one.size_bytes for one in check.orphans} == {3}
    assert len(problems) == len(check.orphans) == 2
    there.engine.close()


BUSY = {**SETTINGS, "log.cleaner.backoff.ms": "20"}
CHECKS, CHANGES = 12, 20


@on_uvloop
async def test_brokers_at_work_are_no_false_alarm(
    tmp_path: Path, catalog_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers append, segments are cleaned and deleted, the WAL is freed, and topics go."""
    exchanges: list[object] = []

    def exchange(*arguments: Any, **named: Any) -> None:
        exchange_segments(*arguments, **named)
        exchanges.append(named)

    monkeypatch.setattr(exchanging, "exchange_segments", exchange)
    async with cluster(tmp_path, catalog_url, 2, BUSY) as brokers, AsyncExitStack() as stack:
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        await create(brokers[0], "t", 2, {**SMALL, **compacted})
        await create(brokers[0], "short", 1, {**SMALL, "retention.bytes": "1000"})
        await known_everywhere(brokers, "short")
        there, is_over = place(tmp_path, catalog_url), asyncio.Event()
        stack.callback(there.engine.close)

        async def load(name: str, number: int) -> None:
            leader = await until(lambda: leader_of(brokers, number, name))
            async with client(leader) as one:
                for at in itertools.count():
                    if is_over.is_set():
                        return
                    batch = keyed(b"k%d" % (at % 7), bytes(10 + 60 * (at % 10)), at)
                    answer = await one.ask(producing(name, batch, partition=number), version=9)
                    assert not answer.responses[0].partition_responses[0].error_code

        async def tidy() -> None:
            while not is_over.is_set():
                for one in brokers:
                    await free(one)

        async def come_and_go() -> None:
            while not is_over.is_set():
                topic = await create(brokers[0], "gone", 1, SMALL)
                await known_everywhere(brokers, "gone")
                leader = leader_of(brokers, 0, "gone")
                if leader is not None:
                    async with client(leader) as one:
                        await one.ask(producing("gone", keyed(b"k", bytes(400))), version=9)
                await brokers[0].topics.delete([topic.topic_id])

        loads = (load("t", 0), load("t", 1), load("short", 0), tidy(), come_and_go())
        work = asyncio.gather(*loads)
        gone, keys, count, seen = 0, set[str](), 0, 0
        try:
            while count < CHECKS or min(gone, seen) < CHANGES or len(exchanges) < 3:
                problems, check = await asyncio.to_thread(there.check, is_quick=count % 4 == 3)
                assert problems == []
                assert not work.done(), work.result()
                now = there.keys()
                gone, keys, count = gone + len(keys - now), now, count + 1
                seen += check.segments
        finally:
            is_over.set()
            await work
