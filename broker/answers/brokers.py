"""The brokers of partitions, as responses have them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from odradek.broker.metadata.features import ELR
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.services import Services
from odradek.broker.topics.states import OfflinePartition, Partition, RemotePartition
from odradek.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Placement:
    """The leader of a partition, its one replica, and the replica if it is offline.

    While the replica's broker is away, it is not in sync, but eligible to lead again (KIP-966).
    Many answers share it, so its lists are never changed.
    """

    leader_id: int
    replicas: list[int]
    offline: list[int]
    in_sync: list[int]
    eligible: list[int] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE


class Placements:
    """Finds the brokers of partitions, as this broker sees them."""

    def __init__(self, node_id: int, *, has_eligible: bool) -> None:
        """Without `has_eligible`, the last replica of a partition stays in sync."""
        self._has_eligible = has_eligible
        self._own = Placement(node_id, [node_id], [], [node_id])
        # It is the leader all the same, so that clients ask it and get the error.
        self._broken = Placement(node_id, [node_id], [node_id], [node_id])
        self._others: dict[tuple[int, int], Placement] = {}

    def of(self, partition: Partition) -> Placement:
        """Return the brokers of a partition."""
        if isinstance(partition, RemotePartition):
            leader = partition.leader
            key = leader.node_id, leader.replica
            return self._others.get(key) or self._add(*key)
        return self._broken if isinstance(partition, OfflinePartition) else self._own

    def _add(self, leader_id: int, replica: int) -> Placement:
        offline = [] if leader_id == replica else [replica]
        one = [replica]
        made = Placement(leader_id, one, offline, one)
        if leader_id == NO_LEADER:
            in_sync, eligible = ([], one) if self._has_eligible else (one, [])
            error = ErrorCode.LEADER_NOT_AVAILABLE
            made = Placement(leader_id, one, offline, in_sync, eligible, error)
        self._others[leader_id, replica] = made
        return made


@cache
def _placements(node_id: int, has_eligible: bool) -> Placements:
    return Placements(node_id, has_eligible=has_eligible)


def placements(services: Services) -> Placements:
    """Return the placements as a broker sees them."""
    return _placements(services.node_id, ELR in services.features.finalized)
