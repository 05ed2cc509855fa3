"""Chooses the brokers that lead new partitions, and those that partitions move to: pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from odradek.broker.metadata.members import ANY_HOST, NO_LEADER, Leader, Member
from odradek.broker.metadata.store import TopicRecord
from odradek.dataclass import dataclass

# The brokers that are to lead partitions, by topic id and number; NO_LEADER ends a move.
Targets = dict[tuple[bytes, int], int]


def choose_leaders(
    members: Iterable[Member], led: Mapping[int, int], count: int, *, is_shared: bool = False
) -> tuple[Leader, ...]:
    """Return leaders for new partitions: each goes to the broker that leads the fewest.

    `led` has the number of partitions that each broker leads. Kafka places replicas in turn from
    a random broker on (StripedReplicaPlacer), which comes to the same for many topics.
    """
    leaders = {one.node_id: Leader.of(one, is_shared=is_shared) for one in members}
    heap = [(led.get(node_id, 0), node_id) for node_id in leaders]
    heapq.heapify(heap)
    chosen: list[Leader] = []
    for _ in range(count):
        number, node_id = heap[0]
        chosen.append(leaders[node_id])
        heapq.heapreplace(heap, (number + 1, node_id))
    return tuple(chosen)


def assigned_leaders(
    members: Mapping[int, Member],
    assignments: Iterable[Sequence[int]],
    *,
    is_shared: bool = False,
) -> tuple[Leader, ...]:
    """Return the leaders that a client has chosen: the first broker of each assignment."""
    return tuple(Leader.of(members[replicas[0]], is_shared=is_shared) for replicas in assignments)


def spread_evenly(partitions: Sequence[tuple[str, int]], node_ids: Sequence[int]) -> Sequence[int]:
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
) -> Targets:
    """Return the partitions that have to move so that brokers of one host lead equal shares.

    Shared ones are spread over all brokers. Each comes with its topic's id, and with the node id
    of the broker that is to lead it. Those that are on their way to another host stay so. With
    `without` that broker's partitions move to the others of its host, also these, and no others
    do.
    """
    alive = {one.node_id: one for one in members}
    by_host: dict[str, list[_Placed]] = {}
    for one in _placed(topics, alive):
        if without is None and one.goes_to_other_host:
            continue
        by_host.setdefault(one.leader.host, []).append(one)
    targets: Targets = {}
    for host, partitions in by_host.items():
        node_ids = [
            one.node_id
            for one in alive.values()
            if host in (one.host, ANY_HOST) and one.node_id != without
        ]
        if not node_ids:
            continue
        present = [(one.topic, one.leader.node_id) for one in partitions]
        chosen = spread_evenly(present, node_ids)
        targets |= {
            one.key: node_id
            for one, node_id in zip(partitions, chosen, strict=True)
            if node_id != one.leader.node_id and without in (None, one.leader.node_id)
        }
    return targets


def drain_targets(
    topics: Iterable[TopicRecord], members: Iterable[Member], node_id: int
) -> Targets:
    """Return the brokers that are to lead the partitions of a broker instead.

    They are the others of its host; where there are none, those of other hosts get equal shares of
    each topic. Those that are on their way to another broker stay so, and moves to this one are
    cancelled: NO_LEADER. The broker must be alive.
    """
    topics, alive = list(topics), {one.node_id: one for one in members}
    placed = _placed(topics, alive)
    cancelled = {one.key: NO_LEADER for one in placed if one.leader.target == node_id}
    others = [one for one in alive if one != node_id]
    leaving = [one for one in placed if one.node_id == one.leader.node_id == node_id]
    if any(alive[one].host == alive[node_id].host for one in others):
        fair = fair_targets(topics, alive.values(), without=node_id)
        return cancelled | {one.key: fair[one.key] for one in leaving}
    ends = ((one.topic, one.leader if one.key in cancelled else one) for one in placed)
    stays = [(topic, end.node_id) for topic, end in ends if end.node_id != node_id]
    led = Counter(node for _, node in stays)
    of_topic = Counter(stays)
    targets: Targets = {}
    for one in leaving if others else ():
        to = min(others, key=lambda other: (of_topic[one.topic, other], led[other]))
        led[to] += 1
        of_topic[one.topic, to] += 1
        targets[one.key] = to
    return cancelled | targets


def even_targets(topics: Iterable[TopicRecord], members: Iterable[Member]) -> Targets:
    """Return the partitions that have to move so that all brokers lead equal shares.

    As few as possible move to another host; a topic that has the most there goes first. Those that
    are on their way stay so.
    """
    alive = {one.node_id: one for one in members}
    placed = _placed(topics, alive)
    sizes = Counter(one.host for one in alive.values())
    hosts = {one.key: alive[one.node_id].host for one in placed}
    counts = Counter(hosts.values())
    bound = Counter(hosts[one.key] for one in placed if one.is_moving)
    lacking = {host: fair - counts[host] for host, fair in _shares(sizes, counts, bound).items()}
    of_topic = Counter((one.topic, hosts[one.key]) for one in placed)
    arrived = set()
    for one in _by_abundance(placed, hosts):
        host = hosts[one.key]
        if lacking[host] >= 0 or one.is_moving:
            continue
        to = min(
            (other for other, number in lacking.items() if number > 0),
            key=lambda other: (of_topic[one.topic, other] / sizes[other], -lacking[other]),
        )
        lacking[host] += 1
        lacking[to] -= 1
        of_topic[one.topic, to] += 1
        hosts[one.key] = to
        arrived.add(one.key)
    targets: Targets = {}
    for host in sizes:
        here = [one for one in placed if hosts[one.key] == host]
        present = [(one.topic, NO_LEADER if one.key in arrived else one.node_id) for one in here]
        node_ids = [one.node_id for one in alive.values() if one.host == host]
        for one, node_id in zip(here, spread_evenly(present, node_ids), strict=True):
            if node_id != one.node_id and not one.is_moving:
                targets[one.key] = node_id
    return targets


@dataclass(frozen=True, slots=True)
class _Placed:
    """A partition that a live broker leads, and the broker that will lead it after its move."""

    topic: str
    key: tuple[bytes, int]
    leader: Leader
    node_id: int
    goes_to_other_host: bool

    @property
    def is_moving(self) -> bool:
        """Whether it is on its way to another broker."""
        return self.node_id != self.leader.node_id


def _placed(topics: Iterable[TopicRecord], alive: Mapping[int, Member]) -> list[_Placed]:
    """Return the partitions that have leaders; a move to a broker that is away does not count."""
    found = []
    for record in topics:
        for number, leader in enumerate(record.leaders):
            member, target = alive.get(leader.node_id), alive.get(leader.target)
            if member is not None and (leader.is_shared or member.host == leader.host):
                after = target or member
                found.append(
                    _Placed(
                        record.name,
                        (record.topic_id, number),
                        leader,
                        after.node_id,
                        not leader.is_shared and after.host != leader.host,
                    )
                )
    return found


def _shares(
    sizes: Mapping[str, int], counts: Mapping[str, int], bound: Mapping[str, int]
) -> dict[str, int]:
    """Return how many partitions each host is to have, in proportion to its brokers.

    A host to which more than that are bound keeps those, and the others share the rest. Of the
    hosts that may have one more, those have it to which it is bound, then those that have the most
    too many: fewer move.
    """
    shares: dict[str, int] = {}
    rest = dict(sizes)
    while True:
        total = sum(counts.values()) - sum(shares.values())
        brokers = sum(rest.values())
        fair = {host: total * size // brokers for host, size in rest.items()}
        more = [host for host, size in rest.items() if total * size % brokers]
        beyond = [host for host in rest if bound.get(host, 0) > fair[host] + (host in more)]
        one_more = [host for host in more if bound.get(host, 0) > fair[host]]
        extra = total - sum(fair.values())
        full = beyond or (one_more if len(one_more) > extra else [])
        if not full:
            break
        for host in full:
            shares[host] = bound[host]
            del rest[host]
    more.sort(key=lambda host: (host not in one_more, fair[host] - counts.get(host, 0)))
    for host in more[:extra]:
        fair[host] += 1
    return shares | fair


def _by_abundance(
    placed: Iterable[_Placed], hosts: Mapping[tuple[bytes, int], str]
) -> list[_Placed]:
    """Order partitions by how many of their topic precede them at their host, the most first."""
    seen: Counter[tuple[str, str]] = Counter()
    ranks = []
    for one in placed:
        place = one.topic, hosts[one.key]
        seen[place] += 1
        ranks.append((seen[place], one))
    ranks.sort(key=lambda ranked: -ranked[0])
    return [one for _, one in ranks]
