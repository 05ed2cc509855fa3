"""Counts the partitions that each broker leads, those that move, those without a leader: pure.

Topics are immutable, so a thread may count those that the event loop has listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import field

from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.topics.states import RemotePartition
from odradek.broker.topics.topic import Topic
from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Leaderless:
    """A partition without a leader, and the broker that led it last; None if that is unknown."""

    topic: str
    partition: int
    last_leader: int | None


@dataclass(frozen=True, slots=True)
class Moving:
    """A partition that is to move to another broker; NO_LEADER leads it while no broker can."""

    topic_id: bytes
    topic: str
    partition: int
    leader: int
    target: int


@dataclass(slots=True)
class Leadership:
    """The leaders of all partitions, by node id.

    As in Metadata, a broker leads a partition, too, whose disk has failed.
    """

    led: Counter[int] = field(default_factory=Counter)
    # The partitions without a leader, by the broker that led them last.
    lost: Counter[int] = field(default_factory=Counter)
    # The log directories with the files of lost partitions, by the same broker.
    hosts: dict[int, str] = field(default_factory=dict)
    first_leaderless: list[Leaderless] = field(default_factory=list)
    # The partitions that are to move, by their present leader.
    moving: Counter[int] = field(default_factory=Counter)
    first_moving: list[Moving] = field(default_factory=list)

    @property
    def leaderless_count(self) -> int:
        """The number of partitions without a leader."""
        return self.lost.total()

    @property
    def known(self) -> set[int]:
        """The brokers that lead a partition, or led it last."""
        return {*self.led, *self.lost} - {NO_LEADER}

    @property
    def partition_count(self) -> int:
        """The number of all partitions."""
        return self.led.total() + self.leaderless_count


def count_leaders(topics: Iterable[Topic], own_id: int, listed_max: int = 0) -> Leadership:
    """Count the leaders of the partitions of topics, as the broker of a node id sees them.

    The first `listed_max` partitions without a leader are listed in the order of the topics, and
    so are those that are to move.
    """
    found = Leadership()
    for topic in topics:
        for number, leader in enumerate(topic.record.leaders):
            if leader.target == NO_LEADER:
                continue
            found.moving[leader.node_id] += 1
            if len(found.first_moving) < listed_max:
                found.first_moving.append(
                    Moving(topic.topic_id, topic.name, number, leader.node_id, leader.target)
                )
        for one in topic.partitions:
            if not isinstance(one, RemotePartition):
                found.led[own_id] += 1
                continue
            leader = one.leader
            if leader.node_id != NO_LEADER:
                found.led[leader.node_id] += 1
                continue
            found.lost[leader.replica] += 1
            found.hosts[leader.replica] = leader.host
            if len(found.first_leaderless) < listed_max:
                last = None if leader.replica == NO_LEADER else leader.replica
                found.first_leaderless.append(Leaderless(topic.name, one.partition, last))
    return found
