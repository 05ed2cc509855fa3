"""The assignor of share groups: it distributes partitions evenly, and members keep theirs.

If there are at most as many members as partitions, each partition goes to one member. If there are
more, each member gets one partition, and members share partitions. The assignment depends on the
order of Java's tables (modern/tables.py).

Kafka's sources: SimpleAssignor, SimpleHomogeneousAssignmentBuilder and its heterogeneous sibling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from odradek.broker.groups.modern.spec import Assignment, GroupSpec
from odradek.broker.groups.modern.tables import Table, in_map_order, in_set_order
from odradek.broker.ids import Partition
from odradek.broker.orders.hash_map import HashMapKeys
from odradek.broker.orders.java import int_hash, uuid_hash

NAME = "simple"

K = TypeVar("K")
_INT32 = 0xFFFFFFFF


def assign(
    spec: GroupSpec, is_assignable: Callable[[bytes, int], bool]
) -> Mapping[str, Assignment]:
    """Compute a target assignment of the partitions that can be assigned."""
    if not spec.members:
        return {}
    drafts = [_Draft(member.assignment) for member in spec.members.values()]
    if spec.is_homogeneous:
        topics = next(iter(spec.members.values())).topics
        if not topics:
            return {}
        targets = [
            (topic_id, partition)
            for topic_id in topics
            for partition in range(spec.partition_count(topic_id))
            if is_assignable(topic_id, partition)
        ]
        _share_alike(topics, targets, drafts)
    else:
        every = (topic_id for member in spec.members.values() for topic_id in member.topics)
        subscribed = Table(uuid_hash, every)
        if not len(subscribed):
            return {}
        for topic_id in subscribed:
            partitions = [
                partition
                for partition in range(spec.partition_count(topic_id))
                if is_assignable(topic_id, partition)
            ]
            readers = [
                index
                for index, member in enumerate(spec.members.values())
                if topic_id in member.topics
            ]
            _share_topic(topic_id, partitions, readers, drafts)
    return {
        member_id: draft.done() for member_id, draft in zip(spec.members, drafts, strict=True)
    }


class _Draft:
    """The draft of one member's assignment; a topic in it may have lost all its partitions."""

    __slots__ = ("_given", "_order", "_topics")

    def __init__(self, given: Assignment) -> None:
        self._given = given
        self._order: HashMapKeys[bytes] | None = None
        self._topics: dict[bytes, Table[int]] = {}

    def given(self) -> list[tuple[bytes, list[int]]]:
        """Return the member's former partitions, in Java's order."""
        return [(one, in_set_order(self._given[one])) for one in in_map_order(self._given)]

    def of(self, topic_id: bytes) -> list[int]:
        """Return the member's former partitions of a topic."""
        return in_set_order(self._given.get(topic_id, ()))

    def add(self, topic_id: bytes, partition: int) -> None:
        """Add a partition."""
        if self._copied().compute(topic_id):
            self._topics[topic_id] = Table(int_hash)
        self._topics[topic_id].add(partition)

    def remove(self, topic_id: bytes, partition: int) -> bool:
        """Remove a partition; return whether the member had it."""
        self._copied()
        found = self._topics.get(topic_id)
        if found is None or partition not in found:
            return False
        found.discard(partition)
        return True

    def remove_topic(self, topic_id: bytes) -> None:
        """Remove a topic."""
        self._copied().remove(topic_id)
        self._topics.pop(topic_id, None)

    def done(self) -> Assignment:
        """Return the resulting assignment."""
        if self._order is None:
            return self._given
        return {topic_id: tuple(self._topics[topic_id]) for topic_id in self._order}

    def _copied(self) -> HashMapKeys[bytes]:
        if self._order is None:
            # AssignorHelpers.deepCopyAssignment creates a table with this capacity.
            self._order = HashMapKeys(uuid_hash, len(self._given))
            for topic_id, partitions in self.given():
                self._order.put(topic_id)
                self._topics[topic_id] = Table.copy_of(partitions, int_hash)
        return self._order


class _Sharing(Generic[K]):
    """The partitions of members, and the members of partitions, during the distribution."""

    __slots__ = ("by_member", "by_partition", "members", "order")

    def __init__(
        self, hash_of: Callable[[K], int], partition_count: int, member_count: int
    ) -> None:
        self.order: HashMapKeys[K] = HashMapKeys(hash_of, _room_for(partition_count))
        self.by_partition: dict[K, Table[int]] = {}
        self.members: HashMapKeys[int] = HashMapKeys(int_hash, _room_for(member_count))
        self.by_member: dict[int, Table[K]] = {}

    def note(self, member: int, partition: K, hash_of: Callable[[K], int]) -> None:
        """Note that a member has a partition."""
        self.take_in(partition)
        self.by_partition[partition].add(member)
        self.give(member, partition, hash_of)

    def give(self, member: int, partition: K, hash_of: Callable[[K], int]) -> None:
        """Add a partition to those of a member."""
        self.members.compute(member)
        self.by_member.setdefault(member, Table(hash_of)).add(partition)

    def take_in(self, partition: K, capacity: int = 16) -> None:
        """Add a partition, without members."""
        if self.order.compute(partition):
            self.by_partition[partition] = Table(int_hash, capacity=capacity)

    def count(self, member: int) -> int:
        """Return the number of a member's partitions."""
        return len(self.by_member.get(member, ()))


def _share_alike(
    topics: Sequence[bytes], targets: Sequence[Partition], drafts: Sequence[_Draft]
) -> None:
    """Distribute the partitions of topics that all members read."""
    count = len(drafts)
    sharing_max, wanted = _wanted(len(targets), count)
    sharing: _Sharing[Partition] = _Sharing(_partition_hash, len(targets), count)
    unfilled = Table(int_hash, capacity=_room_for(count))
    overfilled = Table(int_hash, capacity=_room_for(count))
    for member, draft in enumerate(drafts):
        had = 0
        for topic_id, partitions in draft.given():
            if topic_id not in topics:
                draft.remove_topic(topic_id)
                continue
            for partition in partitions:
                had += 1
                sharing.note(member, (topic_id, partition), _partition_hash)
        if had < wanted[member]:
            unfilled.add(member)
        elif had > wanted[member]:
            overfilled.add(member)
    for member in overfilled:
        for one in list(sharing.by_member[member]):
            if sharing.count(member) <= wanted[member]:
                break
            drafts[member].remove(*one)
            sharing.by_partition[one].discard(member)
            sharing.by_member[member].discard(one)
    for one in sharing.order:
        for member in _too_many(sharing.by_partition[one], sharing_max):
            if drafts[member].remove(*one):
                sharing.by_partition[one].discard(member)
                sharing.by_member[member].discard(one)
                unfilled.add(member)
    for one in targets:
        sharing.take_in(one)
    _fill(
        sharing, sharing_max, wanted, unfilled, _partition_hash,
        lambda member, one: drafts[member].add(*one),
    )  # fmt: skip


def _share_topic(
    topic_id: bytes,
    targets: Sequence[int],
    subscribed: Sequence[int],
    drafts: Sequence[_Draft],
) -> None:
    """Distribute the partitions of one topic among the members that read it."""
    sharing_max, counts = _wanted(len(targets), len(subscribed))
    wanted = [0] * len(drafts)
    for index, count in zip(subscribed, counts, strict=True):
        wanted[index] = count
    sharing: _Sharing[int] = _Sharing(int_hash, len(targets), len(subscribed))
    for member, draft in enumerate(drafts):
        for partition in draft.of(topic_id):
            sharing.note(member, partition, int_hash)
    for member in sharing.members:
        for partition in list(sharing.by_member[member]):
            if sharing.count(member) <= wanted[member]:
                break
            sharing.by_partition[partition].discard(member)
            sharing.by_member[member].discard(partition)
            drafts[member].remove(topic_id, partition)
    for partition in sharing.order:
        for member in _too_many(sharing.by_partition[partition], sharing_max):
            if drafts[member].remove(topic_id, partition):
                sharing.by_partition[partition].discard(member)
                sharing.by_member[member].discard(partition)
    for partition in targets:
        sharing.take_in(partition, _room_for(len(subscribed)))
    unfilled = Table(int_hash, capacity=_room_for(len(drafts)))
    for member in subscribed:
        if sharing.count(member) < wanted[member]:
            unfilled.add(member)
    _fill(
        sharing, sharing_max, wanted, unfilled, int_hash,
        lambda member, partition: drafts[member].add(topic_id, partition),
    )  # fmt: skip


def _wanted(partition_count: int, member_count: int) -> tuple[int, list[int]]:
    """Return how many members may share a partition, and how many partitions each member gets."""
    sharing_max = -(-member_count // partition_count) if partition_count else 0
    each = sharing_max * partition_count / member_count
    counts = [
        math.ceil(each * (index + 1)) - math.ceil(each * index) for index in range(member_count)
    ]
    return sharing_max, counts


def _too_many(members: Table[int], sharing_max: int) -> Iterable[int]:
    """Iterate over members to take from a partition, as long as it has too many."""
    for member in list(members):
        if len(members) <= sharing_max:
            return
        yield member


def _fill(
    sharing: _Sharing[K],
    sharing_max: int,
    wanted: Sequence[int],
    unfilled: Table[int],
    hash_of: Callable[[K], int],
    give: Callable[[int, K], None],
) -> None:
    """Assign each partition that lacks members to members that lack partitions, in turn."""
    turn, has_given = iter(list(unfilled)), False
    for partition in sharing.order:
        assigned = sharing.by_partition[partition]
        missing = sharing_max - len(assigned)
        while missing > 0:
            member = next(turn, None)
            if member is None:
                if not has_given or not len(unfilled):
                    break
                turn, has_given = iter(list(unfilled)), False
                continue
            if member in assigned:
                continue
            give(member, partition)
            sharing.give(member, partition, hash_of)
            missing -= 1
            has_given = True
            if sharing.count(member) >= wanted[member]:
                unfilled.discard(member)
        if not len(unfilled):
            return


def _room_for(count: int) -> int:
    """Return the capacity that AssignorHelpers.newHashMap requests."""
    return int((count + 1) / 0.75 + 1)


def _partition_hash(partition: Partition) -> int:
    """Return the hashCode of a Java record of topic id and number, as an unsigned integer."""
    topic_id, number = partition
    return (31 * uuid_hash(topic_id) + number) & _INT32
