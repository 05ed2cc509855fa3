"""The brokers of partitions, as responses have them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.topics.partitions import OfflinePartition, Partition, RemotePartition
from odradek.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Placement:
    """The leader of a partition, its one replica, and the replica if it is offline.

    Many answers share it, so its lists are never changed.
    """

    leader_id: int
    replicas: list[int]
    offline: list[int]
    error: ErrorCode = ErrorCode.NONE


class Placements:
    """Finds the brokers of partitions, as this broker sees them."""

    def __init__(self, node_id: int) -> None:
        self._own = Placement(node_id, [node_id], [])
        # It is the leader all the same, so that clients ask it and get the error.
        self._broken = Placement(node_id, [node_id], [node_id])
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
        error = ErrorCode.LEADER_NOT_AVAILABLE if leader_id == NO_LEADER else ErrorCode.NONE
        made = self._others[leader_id, replica] = Placement(leader_id, [replica], offline, error)
        return made


@cache
def placements(node_id: int) -> Placements:
    """Return the placements as a broker sees them."""
    return Placements(node_id)
