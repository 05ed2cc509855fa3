"""The WAL's rows in the catalog: an entry is durable, and its records readable, once it has one.

A row has the entry's index, and its body too if that is small; otherwise the body is an object of
the bucket, whose key follows from session and sequence (`object_key`).

1. The sequences of a session have no gaps, and are committed in order.
2. No entry is committed once its session is closed: both change the session's row.
3. A commit whose answer was lost can be repeated, and adds nothing then.
4. Of two entries with batches of the same partition, the one with the lower offsets has the lower
   place, also when other brokers led the partition in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from odradek.broker.catalog.key_lists import query_for
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.metadata.statements import Connection
from odradek.dataclass import dataclass

TABLES = """
    CREATE TABLE wal_entry (
        place      INTEGER PRIMARY KEY AUTOINCREMENT,
        session    INTEGER NOT NULL,
        sequence   INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        runs       BLOB NOT NULL,
        body       BLOB,
        UNIQUE (session, sequence)
    );
    ALTER TABLE session ADD COLUMN next_sequence INTEGER NOT NULL DEFAULT 0;
"""
_ENTRIES = (
    "SELECT place, session, sequence, size_bytes, runs, body IS NOT NULL FROM wal_entry"
)


@dataclass(frozen=True, slots=True)
class NewRow:
    """An entry to commit; `body` is None when the bucket has it."""

    size_bytes: int
    runs: bytes
    body: bytes | None


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A committed entry; unless it is inline, the bucket has its body."""

    place: int
    session: int
    sequence: int
    size_bytes: int
    runs: bytes
    is_inline: bool


def object_key(session: int, sequence: int) -> str:
    """Return the key of an entry's object; keys of a session sort by sequence."""
    return f"wal/{session:010d}/{sequence:012d}"


def commit_entries(
    connection: Connection, session: int, first: int, entries: Sequence[NewRow]
) -> None:
    """Commit entries with the sequences from `first` on. Raises SessionClosed.

    It runs in Engine.touch: it waits for no other broker's commit.
    """
    counted = connection.execute(
        "UPDATE session SET next_sequence = next_sequence + ?"
        " WHERE epoch = ? AND next_sequence = ? AND closed_at_ms IS NULL RETURNING epoch",
        (len(entries), session, first),
    )
    if counted:
        connection.execute_many(
            "INSERT INTO wal_entry (session, sequence, size_bytes, runs, body)"
            " VALUES (?, ?, ?, ?, ?)",
            [
                (session, sequence, one.size_bytes, one.runs, one.body)
                for sequence, one in enumerate(entries, first)
            ],
        )
    elif _next_sequence(connection, session) != first + len(entries):
        raise SessionClosed("the session of this broker is closed")


def _next_sequence(connection: Connection, session: int) -> int:
    rows = connection.execute("SELECT next_sequence FROM session WHERE epoch = ?", (session,))
    return int(rows[0][0]) if rows else -1


def entry_rows(connection: Connection, after: int, count_max: int) -> list[EntryRow]:
    """Return the first entries after a place, by place."""
    found = connection.execute(
        _ENTRIES + " WHERE place > ? ORDER BY place LIMIT ?", (after, count_max)
    )
    return list(map(_entry_row, found))


def session_ends(connection: Connection) -> dict[int, int]:
    """Return the sequence of the next entry of each open session."""
    rows = connection.execute(
        "SELECT epoch, next_sequence FROM session WHERE closed_at_ms IS NULL"
    )
    return dict(rows)


def entries_from(
    connection: Connection, positions: Mapping[int, int], count_max: int
) -> list[EntryRow]:
    """Return the first entries of each session from a sequence on, by session and sequence."""
    rows: list[EntryRow] = []
    for session, sequence in sorted(positions.items()):
        found = connection.execute(
            _ENTRIES + " WHERE session = ? AND sequence >= ? ORDER BY sequence LIMIT ?",
            (session, sequence, count_max),
        )
        rows += map(_entry_row, found)
    return rows


def _entry_row(row: Sequence[Any]) -> EntryRow:
    place, session, sequence, size, runs, is_inline = row
    return EntryRow(place, session, sequence, size, bytes(runs), bool(is_inline))


def entry_parts(
    connection: Connection, parts: Collection[tuple[int, int, int]]
) -> dict[int, bytes]:
    """Return parts of the bodies of inline entries by place.

    Each part has the entry's place, a position in its body and a size.
    """
    rows = query_for(
        connection,
        "SELECT place, substr(body, CAST(column2 AS INTEGER) + 1, CAST(column3 AS INTEGER))"
        " FROM wal_entry JOIN (KEYS) AS given ON place = column1",
        parts,
    )
    return {place: bytes(part) for place, part in rows}


def entry_bodies(connection: Connection, places: Sequence[int]) -> dict[int, bytes]:
    """Return the bodies of inline entries by place."""
    rows = query_for(
        connection,
        "SELECT place, body FROM wal_entry JOIN (KEYS) AS given ON place = given.column1",
        [(one,) for one in places],
    )
    return {place: bytes(body) for place, body in rows}
