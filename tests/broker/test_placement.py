"""Where partitions move to: properties of even shares, within hosts and between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.metadata.members import NO_LEADER, Leader, Member
from odradek.broker.metadata.store import TopicRecord
from odradek.broker.topics.placement import (
    Targets,
    drain_targets,
    even_targets,
    fair_targets,
)


@dataclass(frozen=True)
class Cluster:
    """Brokers, which are alive, and topics."""

    members: Sequence[Member]
    topics: Sequence[TopicRecord]

    def leaders(self) -> Iterable[tuple[tuple[bytes, int], TopicRecord, Leader]]:
        for record in self.topics:
            for number, leader in enumerate(record.leaders):
                yield (record.topic_id, number), record, leader

    def host(self, node_id: int) -> str:
        return next(one.host for one in self.members if one.node_id == node_id)

    def with_targets(self, targets: Targets) -> Cluster:
        """Return it with moves that have begun."""

        def begin(key: tuple[bytes, int], one: Leader) -> Leader:
            return replace(one, target=targets.get(key, one.target))

        return self._changed(begin)

    def moved(self) -> Cluster:
        """Return it after all moves."""

        def end(_: object, one: Leader) -> Leader:
            if one.target == NO_LEADER:
                return one
            return Leader(one.target, one.epoch + 1, self.host(one.target), one.target)

        return self._changed(end)

    def _changed(self, change: Callable[[tuple[bytes, int], Leader], Leader]) -> Cluster:
        topics = [
            replace(
                record,
                leaders=tuple(
                    change((record.topic_id, number), one)
                    for number, one in enumerate(record.leaders)
                ),
            )
            for record in self.topics
        ]
        return replace(self, topics=topics)

    def led(self) -> Counter[int]:
        return Counter(one.node_id for _, _, one in self.leaders())

    def of_hosts(self) -> Counter[str]:
        return Counter(one.host for _, _, one in self.leaders())

    def copied(self, targets: Targets) -> int:
        """Return how many partitions move to another host."""
        hosts = {key: one.host for key, _, one in self.leaders()}
        return sum(one >= 0 and self.host(one) != hosts[key] for key, one in targets.items())


@st.composite
def clusters(draw: st.DrawFn, *, are_moving: bool = False) -> Cluster:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    hosts = [host for host, size in zip("abcd", sizes, strict=False) for _ in range(size)]
    members = [Member(node_id, host, None, ()) for node_id, host in enumerate(hosts, 1)]
    leaders = st.sampled_from(members).map(Leader.of)
    if are_moving:
        targets = st.sampled_from([NO_LEADER, *(one.node_id for one in members)])
        leaders = st.builds(lambda one, target: replace(one, target=target), leaders, targets)
        leaders = leaders.map(lambda one: replace(one, target=_other(one)))
    drawn = draw(st.lists(st.lists(leaders, min_size=1, max_size=8), max_size=6))
    topics = [
        TopicRecord(f"t{at}", bytes([at]), len(some), 1, 0, leaders=tuple(some))
        for at, some in enumerate(drawn)
    ]
    return Cluster(members, topics)


def _other(leader: Leader) -> int:
    return NO_LEADER if leader.target == leader.node_id else leader.target


@given(clusters())
def test_as_few_partitions_as_needed_move_between_hosts(cluster: Cluster) -> None:
    targets = even_targets(cluster.topics, cluster.members)
    before, sizes = cluster.of_hosts(), Counter(one.host for one in cluster.members)
    after = cluster.with_targets(targets).moved().of_hosts()
    total, brokers = before.total(), len(cluster.members)
    low = {host: total * size // brokers for host, size in sizes.items()}
    high = {host: -(-total * size // brokers) for host, size in sizes.items()}
    assert all(low[host] <= after[host] <= high[host] for host in sizes)
    least = max(
        sum(max(0, before[host] - high[host]) for host in sizes),
        sum(max(0, low[host] - before[host]) for host in sizes),
    )
    assert cluster.copied(targets) == least


@given(clusters(are_moving=True))
def test_moves_that_are_under_way_go_on_and_nothing_is_copied_twice(cluster: Cluster) -> None:
    targets = even_targets(cluster.topics, cluster.members)
    moving = {key for key, _, one in cluster.leaders() if one.target != NO_LEADER}
    assert not moving & targets.keys()
    begun = cluster.with_targets(targets)
    assert not begun.copied(even_targets(begun.topics, begun.members))
    within = fair_targets(cluster.topics, cluster.members)
    assert not cluster.copied(within)
    assert not any(
        cluster.host(one.target) != one.host
        for key, _, one in cluster.leaders()
        if key in within and one.target != NO_LEADER
    )


@given(clusters(are_moving=True), st.data())
def test_a_drained_broker_leads_nothing_afterwards(cluster: Cluster, data: st.DataObject) -> None:
    drained = data.draw(st.sampled_from(cluster.members))
    others = [one for one in cluster.members if one is not drained]
    here = [one for one in others if one.host == drained.host]
    targets = drain_targets(cluster.topics, cluster.members, drained.node_id)
    begun = cluster.with_targets(targets)
    if not others:
        assert not targets
        return
    assert not begun.moved().led()[drained.node_id]
    for key, _, one in cluster.leaders():
        to = targets.get(key)
        if one.target == drained.node_id:
            assert to == NO_LEADER
        elif to is not None:
            assert (one.node_id, one.target) == (drained.node_id, NO_LEADER)
            assert to in {one.node_id for one in here or others}
    assert not drain_targets(begun.topics, begun.members, drained.node_id)
    if not here:
        led = Counter((record.name, one.node_id) for _, record, one in begun.moved().leaders())
        names = {record.topic_id: record.name for record in cluster.topics}
        for (topic_id, _), to in targets.items():
            if to != NO_LEADER:
                name = names[topic_id]
                least = min(led[name, other.node_id] for other in others)
                assert led[name, to] <= least + 1
