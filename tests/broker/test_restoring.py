"""The transaction of a restore: nothing is given away twice, and nobody is at work meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from odradek.broker.catalog.object_rows import read_sessions
from odradek.broker.catalog.passages import note_export
from odradek.broker.catalog.registrations import KEPT_SESSIONS, absent_members, prune_sessions
from odradek.broker.catalog.restoring import (
    LEADER_EPOCHS_SKIPPED,
    MOVES_SKIPPED,
    PRODUCER_IDS_SKIPPED,
    SESSIONS_SKIPPED,
    Copy,
    Cuts,
    Kept,
    read_copy,
    restore,
    session_after,
)
from odradek.broker.catalog.sessions import SessionClosed, open_session, open_sessions
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.catalog.wal_rows import NewRow, commit_entries, entry_bodies, entry_rows
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.statements import Connection, Value
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import let_leases_end
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.segment_shelf import Shelf, member, row

TOPIC = b"o" * 16
ONE, TWO = (TOPIC, 0), (TOPIC, 1)
NOTHING = Cuts({})


@pytest.fixture
def shelf(catalog_url: str) -> Iterator[Shelf]:
    made = Shelf(catalog_url)
    made.engine.transact(lambda to: CatalogStatements(to).begin_cluster("c", 7000))
    made.create_topic(TOPIC, 2)
    yield made
    made.engine.close()


def run(shelf: Shelf, statement: str, *values: Value) -> list[tuple[object, ...]]:
    return shelf.engine.transact(lambda to: to.execute(statement, values))


def look(shelf: Shelf) -> Copy:
    return shelf.engine.read(lambda to: read_copy(to, shelf.engine))


def restored(
    shelf: Shelf, cuts: Cuts = NOTHING, *, last: int = 0, copy: Copy | None = None
) -> int:
    """Restore the catalog; return the epoch of its row."""
    copy = copy or look(shelf)
    session = session_after(copy, last)
    work = partial(
        restore, engine=shelf.engine, copy=copy, session=session, cuts=cuts, change_id="r"
    )
    shelf.engine.transact(work)
    return session


def commit(shelf: Shelf, session: int, first: int, *bodies: bytes | None) -> None:
    rows = [NewRow(len(one or b""), b"", one) for one in bodies]
    shelf.touch(lambda to: commit_entries(to, session, first, rows))


def test_no_number_is_given_twice(shelf: Shelf) -> None:
    session = shelf.session()
    let_leases_end(shelf.engine)
    made = restored(shelf, last=41)
    assert made == 41 + SESSIONS_SKIPPED
    assert shelf.session() == made + 1
    partitions = "SELECT leader, leader_epoch, target, move FROM partition"
    assert run(shelf, partitions) == [(-1, LEADER_EPOCHS_SKIPPED, -1, MOVES_SKIPPED)] * 2
    first = shelf.engine.transact(lambda to: CatalogStatements(to).allocate_producer_ids(1))
    assert first == 7000 + PRODUCER_IDS_SKIPPED
    with pytest.raises(SessionClosed):
        commit(shelf, session, 0, b"x")
    assert run(shelf, "SELECT count(*) FROM wal_entry") == [(0,)]


def test_the_latest_session_counts_if_the_bucket_is_older(shelf: Shelf) -> None:
    sessions = [shelf.session(), shelf.session(2)]
    let_leases_end(shelf.engine)
    assert restored(shelf, last=1) == max(sessions) + SESSIONS_SKIPPED


def test_a_catalog_can_be_restored_again(shelf: Shelf) -> None:
    first = restored(shelf)
    assert restored(shelf) == first + SESSIONS_SKIPPED


def test_a_catalog_is_refused_while_a_session_has_not_expired(shelf: Shelf) -> None:
    shelf.session(3)
    with pytest.raises(MetadataError, match=r"of broker 3: stop all brokers.* in 3[56]\d\d s"):
        look(shelf)
    let_leases_end(shelf.engine)
    copy = look(shelf)
    assert [one.node_id for one in copy.open] == [3]
    shelf.session(4)
    with pytest.raises(MetadataError, match="of broker 4: stop"):
        restored(shelf, copy=copy)
    assert len(shelf.engine.read(open_sessions)) == 2


def test_a_catalog_that_was_changed_meanwhile_is_refused(shelf: Shelf) -> None:
    """A broker that was paused goes on, and renews its lease later."""
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 10, "a"))
    let_leases_end(shelf.engine)

    def begin_topic() -> None:
        shelf.create_topic(b"x" * 16, 1)
        run(shelf, "UPDATE revision SET number = number + 1")

    for change in (
        lambda: commit(shelf, session, 0, b"x"),
        lambda: shelf.add(session, row(ONE, 10, 20, "b")),
        lambda: shelf.raise_log_start(session, {ONE: 5}),
        begin_topic,
        lambda: shelf.close_session(session),
    ):
        copy = look(shelf)
        change()
        with pytest.raises(MetadataError, match="was changed meanwhile"):
            restored(shelf, copy=copy)
    assert run(shelf, "SELECT max(leader_epoch) FROM partition") == [(0,)]


def test_an_exported_catalog_is_refused(shelf: Shelf) -> None:
    shelf.engine.transact(lambda to: note_export(to, "host-1", 1))
    with pytest.raises(MetadataError, match="was exported"):
        look(shelf)


def test_a_copy_without_its_counter_is_refused(shelf: Shelf) -> None:
    session = shelf.session()
    commit(shelf, session, 0, b"a", b"b")
    let_leases_end(shelf.engine)
    if shelf.engine.name == "sqlite":
        run(shelf, "DELETE FROM sqlite_sequence")
        restored(shelf)  # it counts on from the last row
        return
    run(shelf, "ALTER TABLE wal_entry ALTER COLUMN place RESTART WITH 1")
    with pytest.raises(MetadataError):
        restored(shelf)
    run(shelf, "DELETE FROM wal_entry WHERE place < 2")
    run(shelf, "ALTER TABLE wal_entry ALTER COLUMN place RESTART WITH 1")
    with pytest.raises(MetadataError, match="load a copy that pg_dump has made"):
        restored(shelf)


def test_brokers_that_follow_see_the_change(shelf: Shelf) -> None:
    before = look(shelf).revision
    restored(shelf)
    assert look(shelf).revision == before + 1
    ids = run(shelf, "SELECT DISTINCT id FROM change WHERE revision = ?", before + 1)
    assert ids == [("r",)]


def test_the_row_of_a_restore_is_no_broker_and_stays(shelf: Shelf) -> None:
    made = restored(shelf)
    assert shelf.engine.read(absent_members) == ()

    def join(connection: Connection) -> None:
        epoch = made
        for _ in range(KEPT_SESSIONS + 1):
            epoch = open_session(connection, shelf.engine, member(1), 1)
        connection.execute("UPDATE session SET closed_at_ms = 1 WHERE node_id = 1")
        prune_sessions(connection, epoch)

    shelf.engine.transact(join)
    assert shelf.engine.read(read_sessions).restored == made


def test_a_log_that_is_cut_names_its_rest_only(shelf: Shelf) -> None:
    session = shelf.session()
    every = [row(ONE, at, at + 10, f"s{at}") for at in range(0, 50, 10)]
    shelf.add(session, *every, row(TWO, 0, 10, "other"))
    run(shelf, "UPDATE partition SET cleaner_offset = 35")
    let_leases_end(shelf.engine)
    restored(shelf, Cuts({ONE: Kept(10, 30)}))
    stored = shelf.stored(ONE, TWO)
    assert [one.key for one in stored[ONE].segments] == ["s10", "s20"]
    assert (stored[ONE].log_start_offset, stored[ONE].stored_offset) == (10, 30)
    assert (stored[ONE].cleaner_offset, stored[TWO].cleaner_offset) == (None, 35)
    assert (stored[TWO].log_start_offset, stored[TWO].stored_offset) == (0, 10)
    # The objects stay in the bucket.
    assert shelf.noted() == {}


@pytest.mark.parametrize(
    ("kept", "start", "stored"),
    [
        (Kept(30, 40), 30, 30),  # only the WAL has them
        (Kept(40, 40), 40, 40),  # nothing is left
        (Kept(0, 30), 0, 20),  # the end of the WAL is lost
    ],
)
def test_offsets_of_a_cut_in_the_wal(shelf: Shelf, kept: Kept, start: int, stored: int) -> None:
    shelf.add(shelf.session(), row(ONE, 0, 20, "a"))
    let_leases_end(shelf.engine)
    restored(shelf, Cuts({ONE: kept}))
    one = shelf.stored(ONE)[ONE]
    assert (one.log_start_offset, one.stored_offset) == (start, stored)
    assert len(one.segments) == (kept.first < 20)


def test_entries_of_the_wal_keep_their_places(shelf: Shelf) -> None:
    session = shelf.session()
    commit(shelf, session, 0, b"a", None, b"c", b"d")
    places = [one.place for one in shelf.engine.read(lambda to: entry_rows(to, -1, 9))]
    let_leases_end(shelf.engine)
    new = [(places[1], NewRow(5, b"r", None)), (places[2], NewRow(1, b"s", b"C"))]
    made = restored(shelf, Cuts({}, dropped=[places[0]], replaced=new))
    rows = shelf.engine.read(lambda to: entry_rows(to, -1, 9))
    assert [(one.place, one.session, one.sequence, one.is_inline) for one in rows] == [
        (places[1], made, 0, False),
        (places[2], made, 1, True),
        (places[3], session, 3, True),
    ]
    bodies = shelf.engine.read(lambda to: entry_bodies(to, places[2:]))
    assert bodies == {places[2]: b"C", places[3]: b"d"}
