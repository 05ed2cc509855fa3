"""Reads all rows that name objects of the bucket, some at a time, for a check of the objects.

A function that gets "after" returns the next rows in the order of their keys. Rows may change
between two transactions. A row that is seen before and after a look at its object was there all
the time, and the object had to be: no row names a key again that it has ceased to name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from odradek.broker.catalog.key_lists import query_for
from odradek.broker.catalog.segment_rows import SEGMENTS, SegmentRow
from odradek.broker.catalog.sessions import RESTORED
from odradek.broker.catalog.wal_rows import object_key
from odradek.broker.ids import Partition
from odradek.broker.metadata.members import ANY_HOST
from odradek.broker.metadata.statements import Connection

BEFORE_ALL: Partition = b"", -1
"""The place before all partitions."""


class Range(NamedTuple):
    """The offsets of a row of a segment, and its object."""

    base_offset: int
    next_offset: int
    key: str


class Sessions(NamedTuple):
    """The open sessions, the last one that was ever opened, and the last one before a restore."""

    open: frozenset[int]
    last: int
    restored: int


def shared_partitions(
    connection: Connection, after: Partition, count_max: int
) -> list[Partition]:
    """Return the first shared partitions after one."""
    rows = connection.execute(
        "SELECT topic_id, number FROM partition WHERE host = ? AND (topic_id, number) > (?, ?)"
        " ORDER BY topic_id, number LIMIT ?",
        (ANY_HOST, *after, count_max),
    )
    return [(bytes(topic_id), number) for topic_id, number in rows]


def segment_ranges(
    connection: Connection, partitions: Collection[Partition]
) -> dict[Partition, list[Range]]:
    """Return the offsets of the segments of partitions, in their order."""
    found: dict[Partition, list[Range]] = {one: [] for one in partitions}
    for topic_id, number, *columns in query_for(
        connection,
        "SELECT topic_id, number, base_offset, next_offset, key FROM segment"
        " JOIN (KEYS) AS given ON topic_id = given.column1 AND number = given.column2",
        partitions,
    ):
        found[bytes(topic_id), number].append(Range(*columns))
    return {key: sorted(ranges) for key, ranges in found.items()}


def segments_by_key(
    connection: Connection, after: str, count_max: int
) -> dict[str, list[SegmentRow]]:
    """Return the rows of the first objects after a key, by object."""
    keys = connection.execute(
        "SELECT DISTINCT key FROM segment WHERE key > ? ORDER BY key LIMIT ?", (after, count_max)
    )
    found: dict[str, list[SegmentRow]] = {key: [] for (key,) in keys}
    for topic_id, number, *columns in query_for(
        connection, SEGMENTS + " JOIN (KEYS) AS given ON key = given.column1", keys
    ):
        columns[-1] = bool(columns[-1])
        row = SegmentRow((bytes(topic_id), number), *columns)
        found[row.key].append(row)
    return found


def still_current(
    connection: Connection, rows: Collection[SegmentRow]
) -> set[tuple[Partition, int]]:
    """Return the partitions and base offsets of the rows that name the same object as before."""
    keys = {(*one.partition, one.base_offset, one.key) for one in rows}
    found = query_for(
        connection,
        "SELECT topic_id, number, base_offset FROM segment"
        " JOIN (KEYS) AS given ON topic_id = given.column1 AND number = given.column2"
        " AND base_offset = given.column3 AND key = given.column4",
        keys,
    )
    return {((bytes(topic_id), number), base) for topic_id, number, base in found}


def still_committed(connection: Connection, places: Iterable[int]) -> set[int]:
    """Return the places at which the WAL still has entries."""
    found = query_for(
        connection,
        "SELECT place FROM wal_entry JOIN (KEYS) AS given ON place = given.column1",
        {(one,) for one in places},
    )
    return {place for (place,) in found}


def nameless(
    connection: Connection, keys: Collection[str], entries: Collection[tuple[int, int]]
) -> list[str]:
    """Return the keys that no row and no note on garbage names.

    `entries` are sessions and sequences of the WAL; the keys of their objects are returned, too.
    """
    named: set[str] = set()
    every = {*keys, *(object_key(*one) for one in entries)}
    for query in (
        "SELECT segment.key FROM segment JOIN (KEYS) AS given ON segment.key = given.column1",
        "SELECT garbage.key FROM garbage JOIN (KEYS) AS given ON garbage.key = given.column1",
    ):
        named.update(key for (key,) in query_for(connection, query, {(one,) for one in every}))
    found = query_for(
        connection,
        "SELECT session, sequence FROM wal_entry"
        " JOIN (KEYS) AS given ON session = given.column1 AND sequence = given.column2",
        entries,
    )
    named.update(object_key(*one) for one in found)
    return sorted(every - named)


def read_sessions(connection: Connection) -> Sessions:
    """Return the sessions; those closed long ago have no rows."""
    rows = connection.execute("SELECT epoch FROM session WHERE closed_at_ms IS NULL")
    ((last, restored),) = connection.execute(
        "SELECT coalesce(max(epoch), 0), coalesce(max(CASE WHEN clock = ? THEN epoch END), 0)"
        " FROM session",
        (RESTORED,),
    )
    return Sessions(frozenset(epoch for (epoch,) in rows), last, restored)


def topic_names(connection: Connection, topic_ids: Iterable[bytes]) -> dict[bytes, str]:
    """Return the names of topics by their ids."""
    rows = query_for(
        connection,
        "SELECT id, name FROM topic JOIN (KEYS) AS given ON id = given.column1",
        {(one,) for one in topic_ids},
    )
    return {bytes(topic_id): name for topic_id, name in rows}
