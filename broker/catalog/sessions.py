"""Sessions: one row for each life of a broker, with a lease by the catalog's clock.

    open      the broker has renewed its lease, or nobody has closed the session yet
    closed    by the broker at its end, or by another once the lease has ended; for good

Every change of the metadata checks its own session in its own transaction. So the lease decides
only when another broker may close the session; a broker that was paused for an hour and wakes up
finds its session closed, and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from odradek.broker.catalog.engines import Engine
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.members import Endpoint, Member
from odradek.broker.metadata.statements import Connection
from odradek.dataclass import dataclass

RESTORED = "restored"
"""The clock of a row that is no broker's: it stands for a restore, which ended all sessions below.

Its epoch is above all that there were, and it stays.
"""


class SessionClosed(MetadataError):
    """The broker's session is closed; it has to open another."""


@dataclass(frozen=True, slots=True)
class Session:
    """An open session."""

    epoch: int
    member: Member


def close_others(
    connection: Connection, engine: Engine, member: Member, *, shares_host: bool = False
) -> list[int]:
    """Close earlier sessions of a broker that is about to join; return their node ids.

    Those of its host are closed: the lock of the log directories proves that their process has
    ended. With `shares_host` other brokers use these directories, too, and only its own earlier
    sessions are closed. Raises MetadataError while another host uses the node id.
    """
    clock, now_ms = engine.clock(connection)
    closed: list[int] = []
    for row in open_rows(connection):
        other = row.member
        is_neighbour = other.host == member.host and not shares_host
        if other.node_id != member.node_id and not is_neighbour:
            continue
        _refuse_live(row, member.host, clock, now_ms)
        close_session(connection, engine, row.epoch)
        closed.append(other.node_id)
    return closed


def refuse_used_id(connection: Connection, engine: Engine, node_id: int, host: str) -> None:
    """Raise MetadataError while another host uses a node id."""
    clock, now_ms = engine.clock(connection)
    for row in open_rows(connection):
        if row.member.node_id == node_id:
            _refuse_live(row, host, clock, now_ms)


def open_session(connection: Connection, engine: Engine, member: Member, lease_ms: int) -> int:
    """Open a session; return its epoch."""
    clock, now_ms = engine.clock(connection)
    ((last,),) = connection.execute("SELECT coalesce(max(epoch), 0) FROM session")
    epoch = int(last) + 1
    connection.execute(
        "INSERT INTO session (epoch, node_id, host, rack, endpoints, clock, expires_at_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            epoch,
            member.node_id,
            member.host,
            member.rack,
            json.dumps([asdict(one) for one in member.endpoints]),
            clock,
            now_ms + lease_ms,
        ),
    )
    return epoch


def check_session(connection: Connection, epoch: int) -> None:
    """Raise SessionClosed unless a session is open; part of each change's transaction."""
    found = "SELECT 1 FROM session WHERE epoch = ? AND closed_at_ms IS NULL"
    if not connection.execute(found, (epoch,)):
        raise SessionClosed("the session of this broker is closed")


def renew_session(connection: Connection, engine: Engine, epoch: int, lease_ms: int) -> None:
    """Extend a lease. Raises SessionClosed."""
    clock, now_ms = engine.clock(connection)
    renewed = connection.execute(
        "UPDATE session SET clock = ?, expires_at_ms = ?"
        " WHERE epoch = ? AND closed_at_ms IS NULL RETURNING epoch",
        (clock, now_ms + lease_ms, epoch),
    )
    if not renewed:
        raise SessionClosed("another broker has closed this session: its lease had ended")


def close_session(connection: Connection, engine: Engine, epoch: int) -> None:
    """Close a session for good."""
    _, now_ms = engine.clock(connection)
    connection.execute(
        "UPDATE session SET closed_at_ms = ? WHERE epoch = ? AND closed_at_ms IS NULL",
        (now_ms, epoch),
    )


def expired_sessions(connection: Connection, engine: Engine) -> list[Session]:
    """Return the open sessions whose leases have ended."""
    clock, now_ms = engine.clock(connection)
    rows = open_rows(connection)
    return [Session(row.epoch, row.member) for row in rows if not row.is_live(clock, now_ms)]


def open_sessions(connection: Connection) -> tuple[Session, ...]:
    """Return the open sessions, by node id."""
    rows = sorted(open_rows(connection), key=lambda row: row.member.node_id)
    return tuple(Session(row.epoch, row.member) for row in rows)


def sessions_of(connection: Connection, host: str) -> list[Session]:
    """Return the open sessions of a host's brokers."""
    return [one for one in open_sessions(connection) if one.member.host == host]


@dataclass(frozen=True, slots=True)
class Row:
    """An open session, with its lease by the catalog's clock."""

    epoch: int
    member: Member
    clock: str
    expires_at_ms: int

    def is_live(self, clock: str, now_ms: int) -> bool:
        """Return whether the lease has not ended."""
        return self.clock == clock and now_ms < self.expires_at_ms


def open_rows(connection: Connection) -> Sequence[Row]:
    """Return the open sessions with their leases."""
    rows = connection.execute(
        "SELECT epoch, node_id, host, rack, endpoints, clock, expires_at_ms FROM session"
        " WHERE closed_at_ms IS NULL"
    )
    return [_row(*columns) for columns in rows]


def _refuse_live(row: Row, host: str, clock: str, now_ms: int) -> None:
    other = row.member
    if other.host != host and row.is_live(clock, now_ms):
        raise MetadataError(
            f"node.id={other.node_id} is in use by another broker of this catalog, with "
            f"other log directories ({_shown(other)}): choose another node.id, or stop that "
            "broker"
        )


def _row(
    epoch: int, node_id: int, host: str, rack: str | None, endpoints: str, *lease: Any
) -> Row:
    return Row(epoch, member_of(node_id, host, rack, endpoints), *lease)


def member_of(node_id: int, host: str, rack: str | None, endpoints: str) -> Member:
    """Return the broker of a session by its columns."""
    addresses = tuple(Endpoint(**one) for one in json.loads(endpoints))
    return Member(node_id, host, rack, addresses)


def _shown(member: Member) -> str:
    return ", ".join(f"{one.name}://{one.host}:{one.port}" for one in member.endpoints)
