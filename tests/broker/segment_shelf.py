"""A catalog with sessions and partitions, whose segments tests add, exchange and remove."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pytest

from odradek.broker.catalog import segment_rows, wal_rows
from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.garbage_rows import due_garbage
from odradek.broker.catalog.schema import migrate
from odradek.broker.catalog.segment_rows import (
    Leadership,
    SegmentRow,
    StoredLog,
    add_segments,
    exchange_segments,
    offsets_of,
    raise_log_start,
    remove_topics,
    segments_of,
)
from odradek.broker.catalog.sessions import close_session, open_session
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.ids import Partition
from odradek.broker.metadata.members import Leader, Member
from odradek.broker.metadata.statements import Connection, Value
from odradek.broker.metadata.store import TopicRecord

T = TypeVar("T")
TOPIC = b"o" * 16


def member(node_id: int) -> Member:
    return Member(node_id, f"host-{node_id}", None, ())


def row(
    partition: Partition, base: int, after: int, key: str, *, is_open: bool = False
) -> SegmentRow:
    return SegmentRow(
        partition, base, after, key, base, b"files of %b" % key.encode(), 10 * (after - base),
        after, base, 1_700_000_000_000, is_open,
    )  # fmt: skip


class Interrupted:
    """A connection that does something else once, after its first statement with some words."""

    def __init__(
        self, connection: Connection, words: str, interruption: Callable[[], object]
    ) -> None:
        self._connection, self._words, self._interruption = connection, words, interruption
        self.was_interrupted = False

    def execute(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        rows = self._connection.execute(statement, values)
        if self._words in statement and not self.was_interrupted:
            self.was_interrupted = True
            self._interruption()
        return rows

    def execute_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        self._connection.execute_many(statement, rows)


class Shelf:
    """A catalog by one connection."""

    def __init__(self, url: str) -> None:
        self.url, self.engine = url, open_engine(url)

        def work(connection: Connection) -> None:
            migrate(self.engine, connection)
            if not self.engine.has_table(connection, "segment"):
                self.engine.create_tables(connection, wal_rows.TABLES)
                self.engine.create_tables(connection, segment_rows.TABLES)

        self.engine.transact(work)

    def touch(self, work: Callable[[Connection], T]) -> T:
        return self.engine.touch(work)

    def session(self, node_id: int = 1) -> int:
        return self.engine.transact(
            lambda to: open_session(to, self.engine, member(node_id), 3_600_000)
        )

    def close_session(self, session: int) -> None:
        self.engine.transact(lambda to: close_session(to, self.engine, session))

    def create_topic(self, topic_id: bytes, partitions: int, leader: int = 1) -> None:
        record = TopicRecord(topic_id.hex(), topic_id, partitions, 1, 0)
        placed = record.led_by(Leader.of(member(leader)))
        self.engine.transact(lambda to: CatalogStatements(to).create_topics([(placed, {})]))

    def delete_topic(self, topic_id: bytes) -> None:
        def work(connection: Connection) -> None:
            remove_topics(connection, self.engine, [topic_id])
            CatalogStatements(connection).finish_deletion([topic_id])

        self.engine.transact(work)

    def set_leader(self, partition: Partition, node_id: int) -> None:
        statement = "UPDATE partition SET leader = ? WHERE topic_id = ? AND number = ?"
        self.engine.transact(lambda to: to.execute_many(statement, [(node_id, *partition)]))

    def add(self, session: int, *rows: SegmentRow) -> None:
        led = self.led(session, *(one.partition for one in rows))
        self.touch(lambda to: add_segments(to, self.engine, led, rows))

    def exchange(
        self,
        session: int,
        partition: Partition,
        old: Sequence[tuple[int, str]],
        *new: SegmentRow,
    ) -> None:
        led = self.led(session, partition)
        self.touch(lambda to: exchange_segments(to, self.engine, led, partition, old, new))

    def raise_log_start(self, session: int, offsets: Mapping[Partition, int]) -> None:
        led = self.led(session, *offsets)
        self.touch(lambda to: raise_log_start(to, self.engine, led, offsets))

    def led(self, session: int, *partitions: Partition) -> Leadership:
        """Return a leadership with the present epochs, 0 where there is no partition."""
        offsets = self.engine.read(lambda to: offsets_of(to, partitions))
        return Leadership(
            session,
            {one: offsets[one].leader_epoch if one in offsets else 0 for one in partitions},
        )

    def stored(self, *partitions: Partition) -> dict[Partition, StoredLog]:
        return self.engine.read(lambda connection: segments_of(connection, partitions))

    def due(self, age_ms: int = 0, count_max: int = 1_000) -> list[str]:
        return sorted(self.touch(lambda to: due_garbage(to, self.engine, age_ms, count_max)))

    def noted(self) -> dict[str, int]:
        found = "SELECT key, size_bytes FROM garbage"
        return dict(self.engine.read(lambda connection: connection.execute(found)))


@pytest.fixture
def shelf(catalog_url: str) -> Iterator[Shelf]:
    """A catalog with a topic of two partitions, led by broker 1."""
    made = Shelf(catalog_url)
    made.create_topic(TOPIC, 2)
    yield made
    made.engine.close()
