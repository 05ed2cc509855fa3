"""Sums of the rows that name objects of the bucket, for people."""

from __future__ import annotations

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.object_rows import topic_names
from odradek.broker.catalog.segment_rows import offsets_of
from odradek.broker.catalog.wal_rows import entry_rows, object_key
from odradek.broker.metadata.statements import Connection
from odradek.broker.wal.entries import read_ends
from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Sum:
    """A number of things, and their bytes."""

    count: int
    size_bytes: int

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.count + other.count, self.size_bytes + other.size_bytes)


@dataclass(frozen=True, slots=True)
class OldestEntry:
    """The first entry of the WAL; `needed_by` is a partition whose segments lack its records."""

    node_id: int | None  # None once the session has no row
    key: str | None  # None of an inline entry
    size_bytes: int
    needed_by: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class Holdings:
    """The things that the catalog has in the bucket, and inline entries of the WAL.

    `segments` are by topic, partition and whether they are open; their bytes are those of
    batches. `named` is the garbage that other rows still name. `deletable_in_ms` is when the
    first of the other garbage may be deleted.
    """

    segments: dict[tuple[str, int, bool], Sum]
    inline: Sum
    objects: Sum
    oldest: OldestEntry | None
    garbage: Sum
    named: Sum
    deletable_in_ms: int | None


def read_holdings(connection: Connection, engine: Engine, delay_ms: int) -> Holdings:
    """Sum all rows; `delay_ms` is the age at which garbage is deleted. Raises DamagedEntry."""
    segments = connection.execute(
        "SELECT topic.name, segment.number, is_open, count(*), sum(size_bytes) FROM segment"
        " JOIN topic ON topic.id = segment.topic_id GROUP BY topic.name, segment.number, is_open"
    )
    entries = connection.execute(
        "SELECT body IS NOT NULL, count(*), sum(size_bytes) FROM wal_entry GROUP BY 1"
    )
    garbage = connection.execute(
        "SELECT is_named, count(*), sum(size_bytes), min(noted_ms) FROM (SELECT"
        " EXISTS (SELECT 1 FROM segment WHERE segment.key = garbage.key) AS is_named,"
        " size_bytes, noted_ms FROM garbage) AS note GROUP BY is_named"
    )
    wal = {bool(is_inline): Sum(count, int(size)) for is_inline, count, size in entries}
    notes = {bool(is_named): Sum(count, int(size)) for is_named, count, size, _ in garbage}
    (noted_ms,) = [at for is_named, _, _, at in garbage if not is_named] or [None]
    return Holdings(
        {(name, n, bool(is_open)): Sum(count, int(size)) for name, n, is_open, count, size in
         sorted(segments)},
        wal.get(True, Sum(0, 0)),
        wal.get(False, Sum(0, 0)),
        _oldest(connection),
        notes.get(False, Sum(0, 0)),
        notes.get(True, Sum(0, 0)),
        None if noted_ms is None else _wait_ms(connection, engine, noted_ms, delay_ms),
    )  # fmt: skip


def _wait_ms(connection: Connection, engine: Engine, noted_ms: int, delay_ms: int) -> int:
    _, now_ms = engine.clock(connection)
    # A clock that went back: the janitor counts from now on then.
    begun_ms = now_ms if noted_ms > now_ms + delay_ms else noted_ms
    return max(begun_ms + delay_ms - now_ms, 0)


def _oldest(connection: Connection) -> OldestEntry | None:
    for row in entry_rows(connection, -1, 1):
        ends = read_ends(row.runs)
        offsets = offsets_of(connection, ends.keys())
        needed = [
            key
            for key, end in ends.items()
            if key in offsets and max(offsets[key][:2]) < end
        ]
        names = topic_names(connection, [topic_id for topic_id, _ in needed[:1]])
        by = [(names[topic_id], number) for topic_id, number in needed if topic_id in names]
        nodes = connection.execute("SELECT node_id FROM session WHERE epoch = ?", (row.session,))
        return OldestEntry(
            nodes[0][0] if nodes else None,
            None if row.is_inline else object_key(row.session, row.sequence),
            row.size_bytes,
            by[0] if by else None,
        )
    return None
