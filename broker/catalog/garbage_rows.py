"""Notes on objects of the bucket that perhaps no row names any more.

1. A key gets a note in the transaction in which a row ceases to name it, even if other rows still
   do: of two transactions that take away the last two rows, neither sees the other one.
2. A key is due when its last note has the required age and no row names it. So an object that a
   reader has just looked up is not deleted under it.
3. A due note on a key that rows name is removed: the last of these rows leaves another one.
4. No row names a key again that it has ceased to name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from odradek.broker.catalog.engines import Engine
from odradek.broker.metadata.statements import Connection

TABLES = """
    CREATE TABLE garbage (
        key        TEXT NOT NULL PRIMARY KEY,
        noted_ms   INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL
    );
    CREATE INDEX garbage_noted ON garbage (noted_ms);
"""


def note_garbage(connection: Connection, engine: Engine, sizes: Mapping[str, int]) -> None:
    """Note the keys that rows have ceased to name, with the bytes that these rows had in them."""
    if not sizes:
        return
    _, now_ms = engine.clock(connection)
    connection.execute_many(
        "INSERT INTO garbage (key, noted_ms, size_bytes) VALUES (?, ?, ?)"
        " ON CONFLICT (key) DO UPDATE SET noted_ms = excluded.noted_ms,"
        " size_bytes = garbage.size_bytes + excluded.size_bytes",
        # In one order, so that no two transactions wait for each other.
        [(key, now_ms, size) for key, size in sorted(sizes.items())],
    )


def note_garbage_of(
    connection: Connection, engine: Engine, topic_id: bytes, first: int, last: int
) -> None:
    """Note the keys of all segments of a topic's partitions, from a first to a last number."""
    _, now_ms = engine.clock(connection)
    connection.execute(
        "INSERT INTO garbage (key, noted_ms, size_bytes)"
        " SELECT key, ?, sum(size_bytes) FROM segment"
        " WHERE topic_id = ? AND number BETWEEN ? AND ? GROUP BY key ORDER BY key"
        " ON CONFLICT (key) DO UPDATE SET noted_ms = excluded.noted_ms,"
        " size_bytes = garbage.size_bytes + excluded.size_bytes",
        (now_ms, topic_id, first, last),
    )


def due_garbage(
    connection: Connection, engine: Engine, age_ms: int, count_max: int
) -> list[str]:
    """Return the first keys that no row names, and whose last notes are of an age at least.

    It runs in Engine.touch. There may be more, even if it returns fewer than `count_max` keys.
    """
    _, now_ms = engine.clock(connection)
    # The clock may go back: that of SQLite begins at zero with each start of the machine.
    connection.execute(
        "UPDATE garbage SET noted_ms = ? WHERE noted_ms > ?", (now_ms, now_ms + age_ms)
    )
    rows = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM segment WHERE segment.key = garbage.key),"
        " key, noted_ms, size_bytes FROM garbage WHERE noted_ms <= ?"
        " ORDER BY noted_ms, key LIMIT ?",
        (now_ms - age_ms, count_max),
    )
    connection.execute_many(
        # A row may have ceased to name the key since the query: its note is another one then.
        "DELETE FROM garbage WHERE key = ? AND noted_ms = ? AND size_bytes = ?",
        sorted(note for is_named, *note in rows if is_named),
    )
    return [key for is_named, key, *_ in rows if not is_named]


def forget_garbage(connection: Connection, keys: Sequence[str]) -> None:
    """Remove the notes on objects that have been deleted. It runs in Engine.touch."""
    connection.execute_many("DELETE FROM garbage WHERE key = ?", [(one,) for one in sorted(keys)])
