"""The WAL's entries go once segments have their records, and not before."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.lines import Calls, Line
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.catalog.wal_rows import NewRow, commit_entries, entry_rows, object_key
from odradek.broker.catalog.wal_trimming import Trimmed, trim_wal
from odradek.broker.counters.sharing import SharedCounts
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.broker.shared import janitor
from odradek.broker.shared.bucket import Bucket
from odradek.broker.shared.janitor import Janitor
from odradek.broker.wal.entries import DamagedEntry, OpenEntry, read_index
from odradek.config.object_store import ObjectStoreConfig
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import on_uvloop
from tests.broker.segment_shelf import TOPIC, Interrupted, Shelf, row
from tests.broker.segment_shelf import shelf as shelf

OTHER = b"x" * 16
ONE, TWO = (TOPIC, 0), (TOPIC, 1)


def entry(*runs: tuple[Partition, int, int], is_inline: bool = True) -> NewRow:
    """Return an entry of ten bytes a record, with runs from a base offset to a next offset."""
    made = OpenEntry()
    for partition, base, after in runs:
        made.add(partition, bytes(10 * (after - base)), base, after)
    sealed = made.seal()
    body = b"".join(sealed.body) if is_inline else None
    return NewRow(sealed.size_bytes, sealed.index(), body)


def trim(shelf: Shelf, after: int = -1, count_max: int = 1_000) -> Trimmed:
    return shelf.touch(lambda to: trim_wal(to, shelf.engine, after, count_max))


def left(shelf: Shelf) -> list[tuple[int, int]]:
    """Return the sessions and sequences of the entries that are left."""
    rows = shelf.engine.read(lambda to: entry_rows(to, -1, 100_000))
    return [(one.session, one.sequence) for one in rows]


def test_an_entry_goes_once_all_its_runs_are_in_segments(shelf: Shelf) -> None:
    session = shelf.session()
    rows = [
        entry((ONE, 0, 10)),
        entry((ONE, 10, 20), (TWO, 0, 5), is_inline=False),
        entry((TWO, 5, 9), is_inline=False),
    ]
    shelf.touch(lambda to: commit_entries(to, session, 0, rows))
    assert trim(shelf) == Trimmed(None, 3, 0, 0)
    shelf.add(session, row(ONE, 0, 19, "a", is_open=True), row(TWO, 0, 5, "a"))
    assert trim(shelf) == Trimmed(None, 3, 1, 100)
    assert left(shelf) == [(session, 1), (session, 2)]
    assert shelf.noted() == {}
    shelf.add(session, row(ONE, 0, 20, "b"))
    assert trim(shelf) == Trimmed(None, 2, 1, 150)
    assert left(shelf) == [(session, 2)]
    assert shelf.noted() == {"a": 190, object_key(session, 1): 150}
    shelf.touch(lambda to: commit_entries(to, session, 0, rows))  # the answer was lost
    assert left(shelf) == [(session, 2)]


def test_an_entry_of_deleted_records_goes_once_the_producers_are_stored(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.create_topic(OTHER, 1)
    rows = [entry((ONE, 0, 10), ((OTHER, 0), 0, 5), is_inline=False)]
    shelf.touch(lambda to: commit_entries(to, session, 0, rows))
    shelf.raise_log_start(session, {ONE: 10})
    shelf.delete_topic(OTHER)
    assert trim(shelf).freed_count == 0
    shelf.add(session, row(ONE, 10, 10, "a", is_open=True))
    assert trim(shelf) == Trimmed(None, 1, 1, 150)
    assert shelf.due() == [object_key(session, 0)]


def test_the_wal_is_looked_at_part_by_part(shelf: Shelf) -> None:
    session = shelf.session()
    rows = [entry(((ONE, TWO)[at % 2], at // 2, at // 2 + 1)) for at in range(10)]
    shelf.touch(lambda to: commit_entries(to, session, 0, rows))
    shelf.add(session, row(ONE, 0, 4, "a"))
    counts, place = [], -1
    while place is not None:
        part = trim(shelf, place, 3)
        counts.append((part.count, part.freed_count))
        place = part.place
    assert counts == [(3, 2), (3, 1), (3, 1), (1, 0)]
    assert [sequence for _, sequence in left(shelf)] == [1, 3, 5, 7, 8, 9]


def test_a_damaged_index_removes_nothing(shelf: Shelf) -> None:
    session = shelf.session()
    rows = [entry(), NewRow(1, b"damaged", b"x")]
    shelf.touch(lambda to: commit_entries(to, session, 0, rows))
    with pytest.raises(DamagedEntry):
        trim(shelf)
    assert len(left(shelf)) == 2


def test_entries_that_are_committed_meanwhile_stay(shelf: Shelf) -> None:
    """Brokers commit beside each other, so that entries become visible out of order."""
    brokers, entries_each = 3, 150
    shelf.create_topic(OTHER, brokers)
    sessions = [shelf.session() for _ in range(brokers)]
    parts = [(OTHER, number) for number in range(brokers)]
    ends, source = [0] * brokers, itertools.cycle((1, 2, 5))
    begun = threading.Barrier(brokers + 1)

    def write(number: int) -> None:
        other, session = Shelf(shelf.url), sessions[number]
        begun.wait(30)
        for at in range(entries_each):
            made = entry((parts[number], at, at + 1), is_inline=at % 2 == 0)
            other.touch(lambda to: commit_entries(to, session, at, [made]))  # noqa: B023
            ends[number] = at + 1
        other.engine.close()

    with ThreadPoolExecutor(brokers) as threads:
        writers = [threads.submit(write, number) for number in range(brokers)]
        begun.wait(30)
        stored, place, freed = [0] * brokers, -1, 0
        while not all(one.done() for one in writers):
            for number, (begin, end) in enumerate(zip(stored, list(ends), strict=True)):
                if end > begin:
                    stored[number] = begin + max(1, (end - begin) // next(source))
                    made = row(parts[number], begin, stored[number], f"{number}-{begin}")
                    shelf.add(sessions[number], made)
            part = trim(shelf, place, 20)
            place, freed = -1 if part.place is None else part.place, freed + part.freed_count
        for one in writers:
            one.result()
    freed += trim(shelf, -1, 10_000).freed_count
    assert left_ends(shelf) == {
        part: list(range(end + 1, entries_each + 1))
        for part, end in zip(parts, stored, strict=True)
        if end < entries_each
    }
    assert freed == sum(stored) > brokers
    assert set(shelf.due()) == {
        object_key(session, sequence)
        for session, end in zip(sessions, stored, strict=True)
        for sequence in range(1, end, 2)
    }


def test_an_entry_that_becomes_visible_between_two_that_go_stays(new_database: str) -> None:
    shelf = Shelf(new_database)
    shelf.create_topic(TOPIC, 2)
    first, late = shelf.session(), shelf.session()
    shelf.touch(lambda to: commit_entries(to, first, 0, [entry((ONE, 0, 1))]))
    is_placed, may_commit = threading.Event(), threading.Event()

    def commit_late() -> None:
        def work(connection: Connection) -> None:
            commit_entries(connection, late, 0, [entry((TWO, 0, 1))])
            is_placed.set()
            assert may_commit.wait(30)

        Shelf(new_database).touch(work)

    with ThreadPoolExecutor(1) as threads:
        committed = threads.submit(commit_late)
        assert is_placed.wait(30)
        shelf.touch(lambda to: commit_entries(to, first, 1, [entry((ONE, 1, 2))]))
        shelf.add(first, row(ONE, 0, 2, "a"))

        def let_it_commit() -> None:
            may_commit.set()
            committed.result()

        def work(connection: Connection) -> Trimmed:
            interrupted = Interrupted(connection, "FROM wal_entry", let_it_commit)
            return trim_wal(interrupted, shelf.engine, -1, 10)

        assert shelf.touch(work) == Trimmed(None, 2, 2, 20)
    assert left(shelf) == [(late, 0)]
    shelf.engine.close()


def left_ends(shelf: Shelf) -> dict[Partition, list[int]]:
    """Return the next offsets of the runs that are left, by partition."""
    found: dict[Partition, list[int]] = {}
    for one in shelf.engine.read(lambda to: entry_rows(to, -1, 100_000)):
        for run in read_index(one.runs):
            found.setdefault(run.partition, []).append(run.next_offset)
    return {key: sorted(ends) for key, ends in found.items()}


def test_two_that_trim_at_once_free_each_entry(shelf: Shelf) -> None:
    session = shelf.session()
    rows = [entry((ONE, at, at + 1), is_inline=False) for at in range(200)]
    shelf.touch(lambda to: commit_entries(to, session, 0, rows))
    shelf.add(session, row(ONE, 0, 150, "a"))
    with ThreadPoolExecutor(2) as threads:
        for one in [threads.submit(lambda: trim(Shelf(shelf.url))) for _ in range(2)]:
            one.result()
    assert [sequence for _, sequence in left(shelf)] == list(range(150, 200))
    assert shelf.due() == [object_key(session, sequence) for sequence in range(150)]


def test_trimming_needs_no_session(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.touch(lambda to: commit_entries(to, session, 0, [entry((ONE, 0, 1))]))
    shelf.add(session, row(ONE, 0, 1, "a"))
    shelf.close_session(session)
    assert trim(shelf).freed_count == 1
    with pytest.raises(SessionClosed):
        shelf.touch(lambda to: commit_entries(to, session, 1, [entry((ONE, 1, 2))]))


@on_uvloop
async def test_entries_that_are_needed_hold_up_no_others(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(janitor, "_ENTRIES_AT_ONCE", 4)
    monkeypatch.setattr(janitor, "_NEEDED_MAX", 8)
    session = shelf.session()
    needed = [entry((TWO, at, at + 1)) for at in range(20)]
    others = [entry((ONE, at, at + 1)) for at in range(10)]
    shelf.touch(lambda to: commit_entries(to, session, 0, needed + others))
    shelf.add(session, row(ONE, 0, 10, "a"))
    bucket = Bucket(ObjectStoreConfig(odradek_object_store_url=tmp_path.as_uri()))
    line = Line(open_engine(shelf.url), "janitor", Calls())
    cleans = Janitor(bucket, line, lambda: 0, lambda: True, SharedCounts())
    try:
        assert sum([await cleans.free_wal() for _ in range(3)]) == 100
        assert left(shelf) == [(session, at) for at in range(20)]
        shelf.add(session, row(TWO, 0, 20, "b"))
        assert await cleans.free_wal() == 200
        assert left(shelf) == []
    finally:
        await line.close()
        await bucket.close()
