"""Finds the sessions of brokers that are silent, by this broker's own clock.

The clock of a database's machine may jump: by it, all sessions would have ended at once, or that
of a dead broker would be open for an hour. So a broker notes when it first saw each extension of a
lease, and how long the lease was to last then. A session whose lease lasts no longer, without
another extension meanwhile, is silent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.sessions import Session, close_session, open_rows
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.metadata.members import Member
from odradek.broker.metadata.statements import Connection
from odradek.dataclass import dataclass

_MS_PER_S = 1_000
# Another broker's lease may be longer than the one here; by a clock that has jumped, it seems to
# be longer still.
_LONGER_MAX = 10

Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of an open session as the catalog has it."""

    session: Session
    expires_at_ms: int
    # By the catalog's clock; negative once it has ended. None by a clock that is gone.
    left_ms: int | None

    @property
    def key(self) -> Key:
        """The session's epoch, and a number that changes whenever the lease is extended."""
        return self.session.epoch, self.expires_at_ms


class Silences:
    """The extensions of leases that a broker has seen. The event loop owns it."""

    def __init__(self) -> None:
        # When each lease ends unless it is extended.
        self._ends: dict[Key, float] = {}
        self._looked_s = -math.inf

    def silent(self, leases: Sequence[Lease], now_s: float, own_ms: int) -> set[Key]:
        """Return the leases that have ended; `own_ms` is the length of a lease of this broker."""
        if now_s - self._looked_s > own_ms / _MS_PER_S:
            # No broker could extend its lease while the catalog was away.
            self._ends.clear()
        self._looked_s = now_s
        ends = {}
        for one in leases:
            if one.left_ms is None:
                ends[one.key] = -math.inf
                continue
            left_ms = min(max(one.left_ms, own_ms), own_ms * _LONGER_MAX)
            ends[one.key] = self._ends.get(one.key, now_s + left_ms / _MS_PER_S)
        self._ends = ends
        return {key for key, end_s in ends.items() if now_s >= end_s}


def open_leases(connection: Connection, engine: Engine) -> list[Lease]:
    """Return the leases of the open sessions."""
    clock, now_ms = engine.clock(connection)
    return [
        Lease(
            Session(row.epoch, row.member),
            row.expires_at_ms,
            row.expires_at_ms - now_ms if row.clock == clock else None,
        )
        for row in open_rows(connection)
    ]


def close_silent(
    connection: Connection, engine: Engine, silent: set[Key]
) -> tuple[list[Member], list[bytes]]:
    """Close sessions unless they were extended meanwhile.

    Returns their brokers, and the topics of which they led partitions.
    """
    members: list[Member] = []
    topic_ids: list[bytes] = []
    for one in open_leases(connection, engine):
        if one.key in silent:
            close_session(connection, engine, one.session.epoch)
            topic_ids += CatalogStatements(connection).withdraw_leader(one.session.member.node_id)
            members.append(one.session.member)
    return members, topic_ids
