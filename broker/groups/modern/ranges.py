"""The range assignor: each member gets adjacent partitions of each topic.

Topics with the same number of partitions are divided in the same way, so that records with the
same key come to one member. Static members come first, by instance id, then the others by member
id.

Kafka's source: RangeAssignor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.broker.groups.modern.spec import Assignment, GroupSpec, MemberSpec
from odradek.broker.groups.modern.tables import Table
from odradek.broker.orders.java import copied_capacity, utf16, uuid_hash
from odradek.dataclass import dataclass

NAME = "range"


@dataclass(slots=True)
class _Share:
    """The division of a topic among its readers."""

    each: int
    extra: int
    partition_count: int
    next: int = 0

    def take(self) -> tuple[int, ...]:
        """Return the next member's partitions."""
        count = self.each + (self.extra > 0)
        self.extra -= self.extra > 0
        first, self.next = self.next, min(self.next + count, self.partition_count)
        return tuple(range(first, self.next))


def assign(spec: GroupSpec) -> Mapping[str, Assignment]:
    """Compute a target assignment."""
    ordered = sorted(spec.members.items(), key=lambda item: _rank(*item))
    readers: dict[bytes, int] = {}
    for _, member in ordered:
        for topic_id in member.topics:
            readers[topic_id] = readers.get(topic_id, 0) + 1
    shares = {topic_id: _share(spec, topic_id, count) for topic_id, count in readers.items()}
    return {
        member_id: _in_order(shares, member, is_homogeneous=spec.is_homogeneous)
        for member_id, member in ordered
    }


def _rank(member_id: str, member: MemberSpec) -> tuple[bool, bytes]:
    name = member_id if member.instance_id is None else member.instance_id
    return member.instance_id is None, utf16(name)


def _share(spec: GroupSpec, topic_id: bytes, reader_count: int) -> _Share:
    count = spec.partition_count(topic_id)
    return _Share(count // reader_count, count % reader_count, count)


def _in_order(
    shares: Mapping[bytes, _Share], member: MemberSpec, *, is_homogeneous: bool
) -> Assignment:
    """Return a member's share of each topic, in the order of Kafka's HashMap.

    Unless all members read the same topics, the map has room for missing ones as well.
    """
    taken = dict(_taken(shares, member.topics))
    count = len(member.topics) if is_homogeneous else member.named_count
    order = Table(uuid_hash, taken, capacity=copied_capacity(count))
    return {topic_id: taken[topic_id] for topic_id in order}


def _taken(
    shares: Mapping[bytes, _Share], topics: Iterable[bytes]
) -> Iterable[tuple[bytes, tuple[int, ...]]]:
    for topic_id in topics:
        taken = shares[topic_id].take()
        if taken:
            yield topic_id, taken
