"""The rows of segments in the catalog: which offsets of a partition the bucket has as segments.

A row names an object of the bucket, a pack (`storage/objects/packs.py`), and the place of the
segment's files in it. An open row is the part up to next offset of a segment that still grows,
which may have no record; the next upload of the segment replaces it.

1. Only the leader of a partition changes its rows, while its session is open, and in its epoch: a
   late change from before it gave the partition away is refused when it leads it again.
2. Rows have all records from log start offset to stored offset, except those that compaction has
   removed. Neither offset goes back.
3. The last row of a partition stays though its records are deleted, until there is a later one:
   it has the producers and the leader epochs. So no reader needs the WAL below stored offset.
4. A change whose answer was lost can be repeated, and changes nothing then. It is repeated before
   the next change of the partition.
5. Changes of a partition are made one after the other: of two exchanges of a row one fails.
6. A key that a row has ceased to name is noted (`garbage_rows.py`).

The changes run in Engine.touch, beside commits of the WAL: they lock neither session nor entries.
The order of their locks is: changes of the metadata out, then rows of partitions by key, those of
segments, notes by key. Closing a session is a change of the metadata, and so is another leader or
the deletion of a topic; each runs before such a transaction or after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from odradek.broker.catalog import garbage_rows
from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.garbage_rows import note_garbage, note_garbage_of
from odradek.broker.catalog.key_lists import query_for
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.errors import MetadataError
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection, Value
from odradek.config.values import INT32_MAX
from odradek.dataclass import dataclass
from odradek.storage.errors import StaleSegments

TABLES = """
    CREATE TABLE segment (
        topic_id        BLOB NOT NULL,
        number          INTEGER NOT NULL,
        base_offset     INTEGER NOT NULL,
        next_offset     INTEGER NOT NULL,
        key             TEXT NOT NULL,
        position        INTEGER NOT NULL,
        files           BLOB NOT NULL,
        size_bytes      INTEGER NOT NULL,
        max_timestamp   INTEGER NOT NULL,
        first_timestamp INTEGER NOT NULL,
        created_ms      INTEGER NOT NULL,
        is_open         INTEGER NOT NULL,
        PRIMARY KEY (topic_id, number, base_offset)
    );
    CREATE INDEX segment_key ON segment (key);
    ALTER TABLE partition ADD COLUMN stored_offset INTEGER NOT NULL DEFAULT 0;
""" + garbage_rows.TABLES
SEGMENTS = (
    "SELECT topic_id, number, base_offset, next_offset, key, position, files, size_bytes,"
    " max_timestamp, first_timestamp, created_ms, is_open FROM segment"
)
"""The begin of a query for rows; their last columns are the fields of a SegmentRow."""
_INSERT = (
    "INSERT INTO segment (topic_id, number, base_offset, next_offset, key, position, files,"
    " size_bytes, max_timestamp, first_timestamp, created_ms, is_open)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_OR_REPLACE = (
    " ON CONFLICT (topic_id, number, base_offset) DO UPDATE SET"
    " next_offset = excluded.next_offset, key = excluded.key, position = excluded.position,"
    " files = excluded.files, size_bytes = excluded.size_bytes,"
    " max_timestamp = excluded.max_timestamp, first_timestamp = excluded.first_timestamp,"
    " created_ms = excluded.created_ms, is_open = excluded.is_open"
)
_DELETE = "DELETE FROM segment WHERE topic_id = ? AND number = ? AND base_offset = ?"

_Place = tuple[bytes, int, int]
"""The primary key: topic id, partition and base offset."""


class NotLed(MetadataError):
    """The broker of the session does not lead these partitions, or they do not exist."""

    def __init__(self, partitions: Collection[Partition]) -> None:
        first, *others = sorted(partitions)
        more = f" and {len(others)} other partitions" if others else ""
        super().__init__(f"this broker does not lead {_named(first)}{more}")
        self.partitions = frozenset(partitions)


class SegmentGap(MetadataError):
    """The bucket would lack the records between two segments."""


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """A segment in the bucket; `position` and `files` are those of its PackedSegment."""

    partition: Partition
    base_offset: int
    next_offset: int
    key: str
    position: int
    files: bytes
    size_bytes: int  # of the .log file
    max_timestamp: int
    first_timestamp: int
    created_ms: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The part of a log that the bucket has as segments, in the order of their offsets."""

    stored_offset: int
    log_start_offset: int
    segments: tuple[SegmentRow, ...]
    cleaner_offset: int | None = None  # the first dirty one


class Leadership(NamedTuple):
    """The session of a broker, and the epochs in which it leads partitions."""

    session: int
    epochs: Mapping[Partition, int]


class Offsets(NamedTuple):
    """A partition's offsets and leader."""

    stored_offset: int
    log_start_offset: int
    leader: int
    leader_epoch: int
    cleaner_offset: int | None


class _Current(NamedTuple):
    """A row, as far as changes depend on it."""

    next_offset: int
    key: str
    size_bytes: int


def add_segments(
    connection: Connection, engine: Engine, led: Leadership, rows: Iterable[SegmentRow]
) -> None:
    """Add segments that have been uploaded, and raise the stored offsets of their partitions.

    A row replaces the one with the same base offset. Rows wholly below the log start offset are
    deleted, but for the last one. Raises SessionClosed, NotLed, SegmentGap, and StaleSegments when
    the row to replace has later records.
    """
    rows = sorted(rows, key=_place)
    engine.exclude_changes(connection)
    connection.execute_many(
        "UPDATE partition SET stored_offset = CASE"
        " WHEN stored_offset < ? AND (stored_offset >= ? OR log_start_offset >= ?) THEN ?"
        " ELSE stored_offset END WHERE topic_id = ? AND number = ?",
        [
            (one.next_offset, one.base_offset, one.base_offset, one.next_offset, *one.partition)
            for one in rows
        ],
    )
    offsets = check_led(connection, led)
    current = _current(connection, map(_place, rows))
    unnamed = Counter[str]()
    for one in rows:
        stored_offset = offsets[one.partition].stored_offset
        before = current.get(_place(one))
        if stored_offset < one.next_offset:
            raise SegmentGap(
                f"the segment {one.base_offset} of {_named(one.partition)} begins after the "
                f"stored offset {stored_offset}"
            )
        if before is not None and before.next_offset > one.next_offset:
            raise StaleSegments(
                f"the segment {one.base_offset} of {_named(one.partition)} ends at offset "
                f"{before.next_offset} in the catalog, at {one.next_offset} in an upload"
            )
        if before is not None and before.key != one.key:
            unnamed[before.key] += before.size_bytes
        current[_place(one)] = _Current(one.next_offset, one.key, one.size_bytes)
    connection.execute_many(_INSERT + _OR_REPLACE, list(map(_values, rows)))
    starts = {key: one.log_start_offset for key, one in offsets.items()}
    unnamed += _delete_below(connection, starts)
    note_garbage(connection, engine, unnamed)


def exchange_segments(
    connection: Connection,
    engine: Engine,
    led: Leadership,
    partition: Partition,
    old: Collection[tuple[int, str]],
    new: Collection[SegmentRow],
) -> bool:
    """Replace rows, each named by base offset and key, by others with the records that remain.

    Returns False when this was done before, and is repeated. Raises SessionClosed, NotLed, and
    StaleSegments unless all old rows are current.
    """
    engine.exclude_changes(connection)
    connection.execute_many(
        "UPDATE partition SET stored_offset = stored_offset WHERE topic_id = ? AND number = ?",
        [partition],
    )
    check_led(connection, led)
    replaced = {(*partition, base): key for base, key in old}
    current = _current(connection, replaced.keys() | map(_place, new))
    if any(place not in current or current[place].key != key for place, key in replaced.items()):
        if current == {
            _place(one): _Current(one.next_offset, one.key, one.size_bytes) for one in new
        }:
            return False
        raise StaleSegments(f"segments to replace in {_named(partition)} are no longer current")
    connection.execute_many(_DELETE, sorted(replaced))
    connection.execute_many(_INSERT, list(map(_values, new)))
    unnamed = Counter[str]()
    for place, key in replaced.items():
        unnamed[key] += current[place].size_bytes
    for one in new:
        unnamed.pop(one.key, None)
    note_garbage(connection, engine, unnamed)
    return True


def raise_log_start(
    connection: Connection, engine: Engine, led: Leadership, offsets: Mapping[Partition, int]
) -> None:
    """Raise the log start offsets of partitions, and delete the rows wholly below but the last.

    A lower offset changes nothing. Raises SessionClosed and NotLed.
    """
    engine.exclude_changes(connection)
    connection.execute_many(
        "UPDATE partition SET log_start_offset ="
        " CASE WHEN log_start_offset < ? THEN ? ELSE log_start_offset END"
        " WHERE topic_id = ? AND number = ?",
        [(offset, offset, *partition) for partition, offset in sorted(offsets.items())],
    )
    check_led(connection, led)
    note_garbage(connection, engine, _delete_below(connection, offsets))


def note_cleaner_offsets(
    connection: Connection, engine: Engine, led: Leadership, offsets: Mapping[Partition, int]
) -> None:
    """Note the offsets up to which partitions are clean. Raises SessionClosed and NotLed."""
    engine.exclude_changes(connection)
    connection.execute_many(
        "UPDATE partition SET cleaner_offset = ? WHERE topic_id = ? AND number = ?",
        [(offset, *partition) for partition, offset in sorted(offsets.items())],
    )
    check_led(connection, led)


def insert_segments(connection: Connection, rows: Iterable[SegmentRow]) -> None:
    """Add rows of a partition that has none."""
    connection.execute_many(_INSERT, list(map(_values, rows)))


def remove_topics(connection: Connection, engine: Engine, topic_ids: Iterable[bytes]) -> None:
    """Remove the rows of topics; part of the transaction that deletes them."""
    for topic_id in topic_ids:
        _remove(connection, engine, topic_id, 0, INT32_MAX)


def remove_segments(connection: Connection, engine: Engine, partition: Partition) -> None:
    """Remove the rows of a partition; part of the transaction in which it becomes local."""
    topic_id, number = partition
    _remove(connection, engine, topic_id, number, number)


def segments_of(
    connection: Connection, partitions: Collection[Partition]
) -> dict[Partition, StoredLog]:
    """Return the stored logs of partitions; those that do not exist are left out."""
    found: dict[Partition, list[SegmentRow]] = {}
    for topic_id, number, *columns in query_for(
        connection,
        SEGMENTS + " JOIN (KEYS) AS given ON topic_id = given.column1 AND number = given.column2",
        partitions,
    ):
        key, columns[-1] = (bytes(topic_id), number), bool(columns[-1])
        found.setdefault(key, []).append(SegmentRow(key, *columns))
    return {
        key: StoredLog(
            one.stored_offset,
            one.log_start_offset,
            tuple(sorted(found.get(key, ()), key=_place)),
            one.cleaner_offset,
        )
        for key, one in offsets_of(connection, partitions).items()
    }


def offsets_of(
    connection: Connection, partitions: Collection[Partition]
) -> dict[Partition, Offsets]:
    """Return the offsets of partitions; those that do not exist are left out."""
    rows = query_for(
        connection,
        "SELECT topic_id, number, stored_offset, log_start_offset, leader, leader_epoch,"
        " cleaner_offset FROM partition"
        " JOIN (KEYS) AS given ON topic_id = given.column1 AND number = given.column2",
        partitions,
    )
    return {(bytes(topic_id), number): Offsets(*rest) for topic_id, number, *rest in rows}


def _remove(
    connection: Connection, engine: Engine, topic_id: bytes, first: int, last: int
) -> None:
    note_garbage_of(connection, engine, topic_id, first, last)
    for table in ("segment", "cleaning_lease"):
        connection.execute(
            f"DELETE FROM {table} WHERE topic_id = ? AND number BETWEEN ? AND ?",  # noqa: S608
            (topic_id, first, last),
        )


def check_led(connection: Connection, led: Leadership) -> dict[Partition, Offsets]:
    """Return the offsets of partitions that a broker leads, in these epochs by this session.

    Raises SessionClosed and NotLed.
    """
    found = "SELECT node_id FROM session WHERE epoch = ? AND closed_at_ms IS NULL"
    rows = connection.execute(found, (led.session,))
    if not rows:
        raise SessionClosed("the session of this broker is closed")
    ((node_id,),) = rows
    offsets = offsets_of(connection, led.epochs.keys())
    others = {
        key
        for key, epoch in led.epochs.items()
        if (one := offsets.get(key)) is None or (one.leader, one.leader_epoch) != (node_id, epoch)
    }
    if others:
        raise NotLed(others)
    return offsets


def _delete_below(connection: Connection, starts: Mapping[Partition, int]) -> Counter[str]:
    """Delete rows wholly below log start offsets, but for the last ones; return their keys."""
    rows = query_for(
        connection,
        "SELECT topic_id, number, base_offset, key, size_bytes FROM segment"
        " JOIN (KEYS) AS given ON topic_id = given.column1 AND number = given.column2"
        " AND base_offset < given.column3 AND next_offset <= given.column3"
        " WHERE EXISTS (SELECT 1 FROM segment AS later WHERE later.topic_id = segment.topic_id"
        " AND later.number = segment.number AND later.base_offset > segment.base_offset)",
        [(*partition, offset) for partition, offset in starts.items()],
    )
    below = {(bytes(topic_id), *place): (key, size) for topic_id, *place, key, size in rows}
    connection.execute_many(_DELETE, sorted(below))
    unnamed = Counter[str]()
    for key, size in below.values():
        unnamed[key] += size
    return unnamed


def _current(connection: Connection, places: Iterable[_Place]) -> dict[_Place, _Current]:
    rows = query_for(
        connection,
        "SELECT topic_id, number, base_offset, next_offset, key, size_bytes FROM segment"
        " JOIN (KEYS) AS given ON topic_id = given.column1 AND number = given.column2"
        " AND base_offset = given.column3",
        set(places),
    )
    return {
        (bytes(topic_id), number, base): _Current(*rest) for topic_id, number, base, *rest in rows
    }


def _place(row: SegmentRow) -> _Place:
    return *row.partition, row.base_offset


def _values(row: SegmentRow) -> list[Value]:
    return [
        *row.partition, row.base_offset, row.next_offset, row.key, row.position, row.files,
        row.size_bytes, row.max_timestamp, row.first_timestamp, row.created_ms, int(row.is_open),
    ]  # fmt: skip


def _named(partition: Partition) -> str:
    topic_id, number = partition
    return f"partition {number} of the topic with id {topic_id.hex()}"
