"""Makes a copy of a catalog safe to serve, once the catalog itself is lost.

The copy would give numbers away that the lost catalog has given away since:

    session epochs   two brokers would store objects under one key, and a broker that still runs
                     could commit entries in the session of another one
    leader epochs    consumers ignore a leader whose epoch is not above the one that they know,
                     and would not notice that a log has been cut
    producer ids     records of one producer would be taken for repetitions of another one's
    moves            a copy of a partition would be taken for that of a later move

So all of them begin far above those of the copy: a million sessions are one in each second for
eleven days. All sessions are closed with that, in one transaction, and no partition has a leader.

The transaction also removes the parts of logs that are lost: each log keeps one range of its
offsets, and the WAL has no batches after that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.broker.catalog import changes
from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.passages import refuse_exported
from odradek.broker.catalog.sessions import RESTORED, close_session, open_rows
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.catalog.wal_rows import NewRow
from odradek.broker.errors import MetadataError
from odradek.broker.ids import Partition
from odradek.broker.metadata.members import NO_LEADER, Member
from odradek.broker.metadata.statements import Connection
from odradek.dataclass import dataclass

SESSIONS_SKIPPED = 1_000_000
LEADER_EPOCHS_SKIPPED = 1_000_000
MOVES_SKIPPED = 1_000_000
PRODUCER_IDS_SKIPPED = 1_000_000_000


class Kept(NamedTuple):
    """The offsets that a log keeps; an empty log continues at `end`."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Copy:
    """A catalog that nobody uses; each change of a broker would change one of the fields."""

    revision: int
    last_session: int
    open: tuple[Member, ...]
    committed: int  # entries of all sessions
    offsets: int  # the sum of all partitions' stored offsets and log start offsets


@dataclass(frozen=True, slots=True)
class Cuts:
    """The changes by which a catalog names only objects that exist.

    `kept` has the logs that are cut. Entries of the WAL are dropped or replaced by their places; a
    replacement that is an object is that of the new session, with its index as the sequence.
    """

    kept: Mapping[Partition, Kept]
    dropped: Sequence[int] = ()
    replaced: Sequence[tuple[int, NewRow]] = ()


def read_copy(connection: Connection, engine: Engine) -> Copy:
    """Return the state of a catalog that nobody uses.

    Raises MetadataError while a session has not expired, and for a catalog that was exported.
    """
    refuse_exported(connection, engine.address)
    clock, now_ms = engine.clock(connection)
    rows = sorted(open_rows(connection), key=lambda row: row.member.node_id)
    live = [row for row in rows if row.is_live(clock, now_ms)]
    if live:
        brokers = ", ".join(str(row.member.node_id) for row in live)
        wait_s = -(-max(row.expires_at_ms - now_ms for row in live) // 1000)
        raise MetadataError(
            f"the catalog {engine.address} has sessions that have not expired, of broker "
            f"{brokers}: stop all brokers. If none runs, the copy is that fresh: try again in "
            f"{wait_s} s"
        )
    ((last, committed),) = connection.execute(
        "SELECT coalesce(max(epoch), 0), coalesce(sum(next_sequence), 0) FROM session"
    )
    ((offsets,),) = connection.execute(
        "SELECT coalesce(sum(stored_offset + log_start_offset), 0) FROM partition"
    )
    members = tuple(row.member for row in rows)
    return Copy(changes.revision_of(connection), last, members, int(committed), int(offsets))


def session_after(copy: Copy, last_in_bucket: int) -> int:
    """Return a session epoch above all that there were before a restore."""
    return max(copy.last_session, last_in_bucket) + SESSIONS_SKIPPED


def restore(
    connection: Connection, engine: Engine, copy: Copy, session: int, cuts: Cuts, change_id: str
) -> None:
    """Make a copy safe to serve; `session` is from `session_after`.

    It runs in Engine.transact. Raises MetadataError if anybody has used the catalog meanwhile.
    """
    if read_copy(connection, engine) != copy:
        raise MetadataError(
            f"the catalog {engine.address} was changed meanwhile: stop all brokers, and try again"
        )
    for row in open_rows(connection):
        close_session(connection, engine, row.epoch)
    _mark(connection, engine, session, len(cuts.replaced))
    _check_places(connection, engine, session)
    connection.execute(
        "UPDATE partition SET leader = ?, leader_epoch = leader_epoch + ?, target = ?,"
        " move = move + ?",
        (NO_LEADER, LEADER_EPOCHS_SKIPPED, NO_LEADER, MOVES_SKIPPED),
    )
    statements = CatalogStatements(connection)
    statements.allocate_producer_ids(PRODUCER_IDS_SKIPPED)
    _cut_logs(connection, cuts.kept)
    _cut_wal(connection, session, cuts)
    topics = [changes.topic(one.topic_id) for one in statements.topics()]
    changes.note(connection, change_id, [changes.SESSIONS, *topics])


def _mark(connection: Connection, engine: Engine, session: int, next_sequence: int) -> None:
    """Add the row from which session epochs go on, see RESTORED."""
    _, now_ms = engine.clock(connection)
    connection.execute(
        "INSERT INTO session (epoch, node_id, host, endpoints, clock, expires_at_ms, closed_at_ms,"
        " is_unregistered, next_sequence) VALUES (?, ?, '', '[]', ?, ?, ?, 1, ?)",
        (session, NO_LEADER, RESTORED, now_ms, now_ms, next_sequence),
    )


def _check_places(connection: Connection, engine: Engine, session: int) -> None:
    """Raise MetadataError if the next entry of the WAL would not be the last one."""
    ((last,),) = connection.execute("SELECT coalesce(max(place), 0) FROM wal_entry")
    ((place,),) = connection.execute(
        "INSERT INTO wal_entry (session, sequence, size_bytes, runs, body)"
        " VALUES (?, -1, 0, ?, ?) RETURNING place",
        (session, b"", b""),
    )
    connection.execute("DELETE FROM wal_entry WHERE place = ?", (place,))
    if place <= last:
        raise MetadataError(
            f"the copy {engine.address} lacks the counter of wal_entry.place, which is at {place} "
            f"while the table has {last}: load a copy that pg_dump has made"
        )


def _cut_logs(connection: Connection, kept: Mapping[Partition, Kept]) -> None:
    # The objects get no notes as garbage: they stay until an operator deletes them.
    connection.execute_many(
        "DELETE FROM segment WHERE topic_id = ? AND number = ?"
        " AND (next_offset <= ? OR next_offset > ?)",
        [(*key, *one) for key, one in sorted(kept.items())],
    )
    connection.execute_many(
        "UPDATE partition SET"
        " stored_offset = CASE WHEN stored_offset > ? THEN ? WHEN stored_offset < ? THEN ?"
        " ELSE stored_offset END,"
        " cleaner_offset = CASE WHEN cleaner_offset > ? THEN NULL ELSE cleaner_offset END,"
        " log_start_offset = CASE WHEN log_start_offset < ? THEN ? ELSE log_start_offset END"
        " WHERE topic_id = ? AND number = ?",
        [
            (one.end, one.end, one.first, one.first, one.end, one.first, one.first, *key)
            for key, one in sorted(kept.items())
        ],
    )


def _cut_wal(connection: Connection, session: int, cuts: Cuts) -> None:
    connection.execute_many(
        "DELETE FROM wal_entry WHERE place = ?", [(place,) for place in cuts.dropped]
    )
    connection.execute_many(
        "UPDATE wal_entry SET session = ?, sequence = ?, size_bytes = ?, runs = ?, body = ?"
        " WHERE place = ?",
        [
            (session, sequence, one.size_bytes, one.runs, one.body, place)
            for sequence, (place, one) in enumerate(cuts.replaced)
        ],
    )
