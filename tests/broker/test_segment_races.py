"""Changes of segments at once: one after the other by partition, beside the WAL, never in a knot.

SQLite has one writer at a time; the races are those of PostgreSQL.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek.broker.catalog.engines import CatalogAway
from odradek.broker.catalog.garbage_rows import due_garbage
from odradek.broker.catalog.segment_rows import (
    NotLed,
    SegmentRow,
    add_segments,
    exchange_segments,
)
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.catalog.wal_rows import NewRow, commit_entries, entry_rows
from odradek.broker.errors import MetadataError
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.storage.errors import StaleSegments
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.segment_shelf import TOPIC, Interrupted, Shelf, row
from tests.broker.segment_shelf import shelf as shelf

ONE, TWO = (TOPIC, 0), (TOPIC, 1)
THREADS = 4


def at_once(url: str, *works: Callable[[Shelf], object]) -> list[object]:
    """Run works at once, each on a connection of its own; return their results and errors."""
    ready = threading.Barrier(len(works))

    def run(work: Callable[[Shelf], object]) -> object:
        shelf = Shelf(url)
        try:
            ready.wait(30)
            return work(shelf)
        except (MetadataError, StaleSegments) as error:
            return error
        finally:
            shelf.engine.close()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(run, works))


@pytest.mark.parametrize("refusal", [SessionClosed, NotLed])
def test_no_segment_is_added_after_the_end_of_the_session_or_of_the_leadership(
    shelf: Shelf, refusal: type[MetadataError]
) -> None:
    for turn in range(15):
        topic_id, session = bytes([turn]) * 16, shelf.session()
        shelf.create_topic(topic_id, 1)
        partition, begun, added = (topic_id, 0), threading.Event(), []

        def add(
            other: Shelf,
            session: int = session,
            partition: Partition = partition,
            begun: threading.Event = begun,
            added: list[SegmentRow] = added,
        ) -> None:
            for number in itertools.count():
                made = row(partition, number, number + 1, f"{partition[0][0]}-{number}")
                other.add(session, made)
                added.append(made)
                begun.set()

        def end(
            other: Shelf,
            session: int = session,
            partition: Partition = partition,
            begun: threading.Event = begun,
        ) -> tuple[SegmentRow, ...]:
            assert begun.wait(30)
            if refusal is SessionClosed:
                other.close_session(session)
            else:
                other.set_leader(partition, 2)
            return tuple(other.stored(partition)[partition].segments)

        error, seen = at_once(shelf.url, add, end)
        assert isinstance(error, refusal)
        assert seen == tuple(added) == shelf.stored(partition)[partition].segments


def test_one_of_many_exchanges_of_a_segment_is_made(shelf: Shelf) -> None:
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 10, "0"), row(ONE, 10, 20, "0"))
    keys, present, gone = itertools.count(1), ["0", "0"], []
    for turn in range(20):
        names = [f"{next(keys)}" for _ in range(THREADS)]
        # One segment in common, or all of them.
        bases = [(0, 10) if turn % 2 else (0,) for _ in names]

        def exchange(other: Shelf, name: str, bases: tuple[int, ...], old: list[str]) -> None:
            other.exchange(
                session,
                ONE,
                [(base, old[base // 10]) for base in bases],
                *(row(ONE, base, base + 10, name) for base in bases),
            )

        outcomes = at_once(
            shelf.url,
            *(
                lambda other, name=name, of=of, old=list(present): exchange(other, name, of, old)
                for name, of in zip(names, bases, strict=True)
            ),
        )
        winners = [name for name, one in zip(names, outcomes, strict=True) if one is None]
        assert len(winners) == 1, outcomes
        assert sum(isinstance(one, StaleSegments) for one in outcomes) == THREADS - 1
        gone += present
        for base in bases[0]:
            present[base // 10] = winners[0]
        found = [one.key for one in shelf.stored(ONE)[ONE].segments]
        assert found == present
        assert set(shelf.due()) == set(gone) - set(present)


def test_the_key_of_two_rows_is_due_when_both_go_at_once(shelf: Shelf) -> None:
    """Two brokers that lead a partition each of a pack."""
    one, two = shelf.session(1), shelf.session(2)
    for turn in range(40):
        topic_id, pack = bytes([turn]) * 16, f"pack-{turn}"
        shelf.create_topic(topic_id, 2)
        parts = (topic_id, 0), (topic_id, 1)
        shelf.add(one, *(row(part, 0, 10, pack) for part in parts))
        shelf.set_leader(parts[1], 2)

        def exchange(other: Shelf, session: int, part: Partition, pack: str = pack) -> None:
            other.exchange(session, part, [(0, pack)], row(part, 0, 10, f"{pack}-{part[1]}"))

        outcomes = at_once(
            shelf.url,
            lambda other, part=parts[0]: exchange(other, one, part),
            lambda other, part=parts[1]: exchange(other, two, part),
            lambda other: other.due(),
        )
        assert outcomes[:2] == [None, None]
        assert pack in shelf.due()


def test_a_note_that_is_made_while_an_older_one_goes_stays(new_database: str) -> None:
    shelf, other = Shelf(new_database), Shelf(new_database)
    shelf.create_topic(TOPIC, 2)
    session = shelf.session()
    shelf.add(session, row(ONE, 0, 10, "pack"), row(TWO, 0, 10, "pack"))
    shelf.exchange(session, ONE, [(0, "pack")], row(ONE, 0, 10, "one"))
    older = "UPDATE garbage SET noted_ms = noted_ms - 1"
    shelf.touch(lambda to: to.execute(older))

    def take_the_last() -> None:
        other.exchange(session, TWO, [(0, "pack")], row(TWO, 0, 10, "two"))

    def work(connection: Connection) -> None:
        interrupted = Interrupted(connection, "FROM garbage", take_the_last)
        assert due_garbage(interrupted, shelf.engine, 0, 10) == []
        assert interrupted.was_interrupted

    shelf.touch(work)
    assert shelf.due() == ["pack"]
    shelf.engine.close()
    other.engine.close()


def test_changes_of_segments_and_of_the_metadata_never_wait_for_each_other_in_a_ring(
    shelf: Shelf,
) -> None:
    """Those of the metadata lock the rows of partitions in any order."""
    session, topic_id, count = shelf.session(), b"m" * 16, 60
    shelf.create_topic(topic_id, count)
    parts = [(topic_id, number) for number in range(count)]

    def add(other: Shelf) -> None:
        for turn in range(25):
            other.add(session, *(row(one, turn, turn + 1, f"{turn}") for one in parts))

    def move(other: Shelf) -> None:
        def work(connection: Connection) -> None:
            connection.execute_many(
                "UPDATE partition SET target = target WHERE topic_id = ? AND number = ?",
                parts[::-1],
            )

        for _ in range(25):
            other.engine.transact(work)

    def raise_starts(other: Shelf) -> None:
        for turn in range(25):
            other.raise_log_start(session, dict.fromkeys(parts[::-1], turn))

    assert at_once(shelf.url, add, move, raise_starts) == [None] * 3
    assert {one.stored_offset for one in shelf.stored(*parts).values()} == {25}


@pytest.mark.parametrize("way", ["segments", "wal", "metadata"])
def test_a_broker_that_stands_still_in_a_transaction_loses_its_session(
    new_database: str, way: str
) -> None:
    """PostgreSQL ends its transaction: the kernel goes on to answer for a stopped process."""
    shelf, other = Shelf(new_database), Shelf(new_database)
    shelf.create_topic(TOPIC, 2)
    session = shelf.session()
    led = shelf.led(session, ONE)

    def work(connection: Connection) -> None:
        if way == "segments":
            add_segments(connection, shelf.engine, led, [row(ONE, 0, 10, "a")])
        elif way == "wal":
            commit_entries(connection, session, 0, [NewRow(1, b"", b"x")])
        other.close_session(session)

    with pytest.raises(CatalogAway):
        (shelf.engine.transact if way == "metadata" else shelf.touch)(work)
    with pytest.raises(SessionClosed):
        shelf.add(session, row(ONE, 0, 10, "a"))
    assert shelf.stored(ONE)[ONE].segments == ()
    assert shelf.engine.read(lambda to: entry_rows(to, -1, 10)) == []
    shelf.engine.close()
    other.engine.close()


def test_the_wal_commits_beside_a_change_of_segments(new_database: str) -> None:
    shelf, other = Shelf(new_database), Shelf(new_database)
    shelf.create_topic(TOPIC, 2)
    session = shelf.session()
    led = shelf.led(session, ONE)

    def work(connection: Connection) -> None:
        add_segments(connection, shelf.engine, led, [row(ONE, 0, 10, "a")])
        exchange_segments(
            connection, shelf.engine, led, ONE, [(0, "a")], [row(ONE, 0, 10, "b")]
        )
        other.touch(lambda to: commit_entries(to, session, 0, [NewRow(1, b"", b"x")]))
        assert len(other.engine.read(lambda to: entry_rows(to, -1, 10))) == 1

    shelf.touch(work)
    assert shelf.stored(ONE)[ONE].segments == (row(ONE, 0, 10, "b"),)
    shelf.engine.close()
    other.engine.close()
