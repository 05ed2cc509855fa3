"""The brokers of partitions, as responses have them."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cache
from typing import Protocol

from odradek.broker.metadata.features import ELR
from odradek.broker.metadata.members import NO_LEADER, Brokers
from odradek.broker.services import Services
from odradek.broker.topics.states import OfflinePartition, Partition, RemotePartition
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Placement:
    """The leader of a partition, its one replica, and the replica if it is offline.

    A shared partition has one more replica in each other rack: the broker that serves consumers
    there. While the replica's broker is away, it is not in sync, but eligible to lead again
    (KIP-966). Many answers share it, so its lists are never changed.
    """

    leader_id: int
    replicas: list[int]
    offline: list[int]
    in_sync: list[int]
    eligible: list[int] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE


class Placements(Protocol):
    """Finds the brokers of partitions, as this broker sees them."""

    def of(self, partition: Partition) -> Placement:
        """Return the brokers of a partition."""


class OwnPlacements:
    """Finds the leaders of partitions, and their replicas if they are away."""

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
def _placements(node_id: int, has_eligible: bool) -> OwnPlacements:
    return OwnPlacements(node_id, has_eligible=has_eligible)


class RackPlacements:
    """Finds the brokers that serve consumers in each rack, too (KIP-392)."""

    def __init__(self, leaders: Placements, brokers: Brokers) -> None:
        self._leaders, self._brokers = leaders, brokers

    def of(self, partition: Partition) -> Placement:
        """Return the brokers of a partition."""
        found = self._leaders.of(partition)
        if isinstance(partition, OfflinePartition) or found.leader_id == NO_LEADER:
            return found
        if not partition.is_shared:
            return found
        name = f"{partition.topic}-{partition.partition}"
        others = self._brokers.closest_elsewhere(name, found.leader_id)
        return replace(
            found, replicas=[*found.replicas, *others], in_sync=[*found.in_sync, *others]
        )


def placements(services: Services) -> Placements:
    """Return the placements as a broker sees them."""
    leaders = _placements(services.node_id, ELR in services.features.finalized)
    if services.replicas is None or len(services.brokers.racks) < 2:
        return leaders
    return RackPlacements(leaders, services.brokers)
