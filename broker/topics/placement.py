"""Chooses the brokers that lead new partitions: pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from odradek.broker.metadata.members import Leader, Member


def choose_leaders(
    members: Iterable[Member], led: Mapping[int, int], count: int
) -> tuple[Leader, ...]:
    """Return leaders for new partitions: each goes to the broker that leads the fewest.

    `led` has the number of partitions that each broker leads. Kafka places replicas in turn from
    a random broker on (StripedReplicaPlacer), which comes to the same for many topics.
    """
    leaders = {one.node_id: Leader.of(one) for one in members}
    heap = [(led.get(node_id, 0), node_id) for node_id in leaders]
    heapq.heapify(heap)
    chosen: list[Leader] = []
    for _ in range(count):
        number, node_id = heap[0]
        chosen.append(leaders[node_id])
        heapq.heapreplace(heap, (number + 1, node_id))
    return tuple(chosen)


def assigned_leaders(
    members: Mapping[int, Member], assignments: Iterable[Sequence[int]]
) -> tuple[Leader, ...]:
    """Return the leaders that a client has chosen: the first broker of each assignment."""
    return tuple(Leader.of(members[replicas[0]]) for replicas in assignments)
