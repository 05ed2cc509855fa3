"""The brokers that a catalog knows, by the rows of their sessions.

A broker is registered from its first session on, until a client unregisters it (KIP-631). Of the
sessions closed long ago, the last one of each registered broker is kept.
"""

from __future__ import annotations

from odradek.broker.catalog.sessions import RESTORED, member_of
from odradek.broker.metadata.members import Member
from odradek.broker.metadata.statements import Connection

KEPT_SESSIONS = 1_000


def absent_members(connection: Connection) -> tuple[Member, ...]:
    """Return the registered brokers without an open session, by node id."""
    rows = connection.execute(
        "SELECT node_id, host, rack, endpoints FROM session"
        " WHERE closed_at_ms IS NOT NULL AND is_unregistered = 0 AND epoch ="
        " (SELECT max(later.epoch) FROM session AS later WHERE later.node_id = session.node_id)"
        " ORDER BY node_id"
    )
    return tuple(member_of(*row) for row in rows)


def unregister(connection: Connection, node_id: int) -> None:
    """Forget a broker whose session is closed; it is registered again when it comes back."""
    connection.execute(
        "UPDATE session SET is_unregistered = 1 WHERE node_id = ? AND closed_at_ms IS NOT NULL",
        (node_id,),
    )


def prune_sessions(connection: Connection, epoch: int) -> None:
    """Delete the sessions closed long before one that has just been opened.

    The latest row of all stays, so that no epoch is given twice; so do those of restores.
    """
    connection.execute(
        "DELETE FROM session WHERE epoch <= ? AND closed_at_ms IS NOT NULL AND clock <> ?"
        " AND (is_unregistered = 1 OR epoch <"
        " (SELECT max(later.epoch) FROM session AS later WHERE later.node_id = session.node_id))",
        (epoch - KEPT_SESSIONS, RESTORED),
    )
