"""Chooses the brokers that lead new partitions: pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from odradek.broker.metadata.members import NO_LEADER, Leader, Member
from odradek.broker.metadata.store import TopicRecord


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


def spread_evenly(
    partitions: Sequence[tuple[str, int]], node_ids: Sequence[int]
) -> Sequence[int]:
    """Return a broker for each partition, given its topic and the broker that it has now.

    The partitions of each topic are spread evenly, and so are those of all topics together.
    A partition stays where it is as long as both are so.
    """
    sizes = Counter(topic for topic, _ in partitions)
    bound = -(-len(partitions) // len(node_ids))
    led: Counter[int] = Counter()
    of_topic: Counter[tuple[str, int]] = Counter()
    chosen: list[int | None] = []
    for topic, present in partitions:
        fair = -(-sizes[topic] // len(node_ids))
        stays = present in node_ids and of_topic[topic, present] < fair and led[present] < bound
        chosen.append(present if stays else None)
        if stays:
            led[present] += 1
            of_topic[topic, present] += 1
    result: list[int] = []
    for (topic, _), kept in zip(partitions, chosen, strict=True):
        if kept is None:
            kept = min(node_ids, key=lambda one: (of_topic[topic, one], led[one]))
            led[kept] += 1
            of_topic[topic, kept] += 1
        result.append(kept)
    return result


def fair_targets(
    topics: Iterable[TopicRecord], members: Iterable[Member], without: int | None = None
) -> dict[tuple[bytes, int], int]:
    """Return the partitions that have to move so that brokers of one host lead equal shares.

    Each comes with its topic's id, and with the node id of the broker that is to lead it. With
    `without` that broker's partitions move to the others of its host, and no others do.
    """
    alive = list(members)
    hosts = {one.node_id: one.host for one in alive}
    by_host: dict[str, list[tuple[TopicRecord, int]]] = {}
    for record in topics:
        for number, leader in enumerate(record.leaders):
            if leader.node_id != NO_LEADER and hosts.get(leader.node_id) == leader.host:
                by_host.setdefault(leader.host, []).append((record, number))
    targets: dict[tuple[bytes, int], int] = {}
    for host, partitions in by_host.items():
        node_ids = [one.node_id for one in alive if one.host == host and one.node_id != without]
        if not node_ids:
            continue
        present = [record.leaders[number].node_id for record, number in partitions]
        names = [record.name for record, _ in partitions]
        chosen = spread_evenly(list(zip(names, present, strict=True)), node_ids)
        targets |= {
            (record.topic_id, number): node_id
            for (record, number), then, node_id in zip(partitions, present, chosen, strict=True)
            if node_id != then and (without is None or then == without)
        }
    return targets
