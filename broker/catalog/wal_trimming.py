"""Removes entries of the WAL whose records segments hold.

1. An entry goes once all its runs are below the stored offsets of their partitions, or the topics
   are deleted. A stored offset never goes back, and topic ids do not come back.
2. Only entries that were looked at go. Another entry may become visible between two of them later:
   commits beside each other end in any order.
"""

from __future__ import annotations

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.garbage_rows import note_garbage
from odradek.broker.catalog.segment_rows import offsets_of
from odradek.broker.catalog.wal_rows import object_key
from odradek.broker.metadata.statements import Connection
from odradek.broker.wal.entries import read_ends
from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A part of the WAL that was looked at; `place` is its end, None at the end of the WAL."""

    place: int | None
    count: int
    freed_count: int
    freed_bytes: int


def trim_wal(connection: Connection, engine: Engine, after: int, count_max: int) -> Trimmed:
    """Remove those of the first entries after a place that nobody needs; note their objects.

    It runs in Engine.touch, beside commits. Raises DamagedEntry.
    """
    rows = connection.execute(
        "SELECT place, session, sequence, size_bytes, body IS NULL, runs FROM wal_entry"
        " WHERE place > ? ORDER BY place LIMIT ?",
        (after, count_max),
    )
    # Entries first: a partition that is missing after that has been deleted.
    ends = [read_ends(runs) for *_, runs in rows]
    offsets = offsets_of(connection, {key for one in ends for key in one})
    needless = {key: one.stored_offset for key, one in offsets.items()}
    freed = [
        row
        for row, one in zip(rows, ends, strict=True)
        if all(key not in needless or end <= needless[key] for key, end in one.items())
    ]
    connection.execute_many(
        "DELETE FROM wal_entry WHERE place = ?", [(place,) for place, *_ in freed]
    )
    objects = {
        object_key(session, sequence): size
        for _, session, sequence, size, is_object, _ in freed
        if is_object
    }
    note_garbage(connection, engine, objects)
    return Trimmed(
        rows[-1][0] if len(rows) == count_max else None,
        len(rows),
        len(freed),
        sum(size for _, _, _, size, *_ in freed),
    )
