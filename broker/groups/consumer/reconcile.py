"""Moves a member from its present partitions to its target assignment, one heartbeat at a time.

First it gives up the partitions that are not in its target; it continues only when it no longer
reports them as its own. Then it gets the free partitions of its target, and waits for the others
until their owners have given them up. So a partition never has two owners.

Kafka's source: CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace

from odradek.broker.groups.consumer.group import NOBODY
from odradek.broker.groups.consumer.member import NOTHING_HELD, Held, Member, MemberState
from odradek.broker.groups.modern.spec import Assignment
from odradek.broker.groups.modern.tables import PLACES, Table, in_map_order
from odradek.broker.orders.hash_map import HashMapKeys
from odradek.broker.orders.java import copied_capacity, int_hash, uuid_hash
from odradek.dataclass import dataclass

Owned = Mapping[bytes, Set[int]]
"""Partitions that a member reports as its own."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target assignment of a member, and its epoch."""

    epoch: int
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One step of a member; `owned` is None if the member does not report its partitions."""

    target: Target
    # The ids of the topics that the member reads.
    subscribed: Set[bytes]
    has_subscription_changed: bool
    partition_epoch: Callable[[bytes, int], int]
    owned: Owned | None

    def step(self, member: Member) -> Member:
        """Return the member after this step, the same object when nothing changes."""
        match member.state:
            case MemberState.STABLE if member.epoch == self.target.epoch:
                return self._drop_unsubscribed(member)
            case MemberState.UNREVOKED_PARTITIONS if self._owns_any(member.revoking):
                return self._drop_unsubscribed(member)
            case MemberState.UNKNOWN:
                return self._advance(member, self.target.epoch)
        return self._advance(member, member.epoch)

    def _owns_any(self, held: Held) -> bool:
        if self.owned is None:
            return True
        return any(
            partition in held.get(topic_id, ())
            for topic_id, partitions in self.owned.items()
            for partition in partitions
        )

    def _drop_unsubscribed(self, member: Member) -> Member:
        """Remove topics that the member does not read any more, before the next target."""
        if not self.has_subscription_changed:
            return member
        dropped = {t: held for t, held in member.assigned.items() if t not in self.subscribed}
        if not dropped and (self.subscribed or member.revoking):
            return member
        kept = {t: held for t, held in member.assigned.items() if t in self.subscribed}
        revoking = {t: dict(held) for t, held in member.revoking.items()}
        for topic_id, held in dropped.items():
            revoking.setdefault(topic_id, {}).update(held)
        moved = member.at(member.epoch)
        if revoking and self._owns_any(revoking):
            unrevoked = MemberState.UNREVOKED_PARTITIONS
            return replace(moved, state=unrevoked, assigned=kept, revoking=revoking)
        return replace(moved, assigned=kept)

    def _advance(self, member: Member, epoch: int) -> Member:
        """Move towards the target assignment, as far as other members allow."""
        assigned: dict[bytes, dict[int, int]] = {}
        revoking: dict[bytes, dict[int, int]] = {}
        free: dict[bytes, list[int]] = {}
        waits = False
        topic_ids = Table.copy_of(self.target.assignment, uuid_hash)
        for topic_id in member.assigned:
            topic_ids.add(topic_id)
        for topic_id in topic_ids:
            wanted: dict[int, None] = {}
            if topic_id in self.subscribed:
                wanted = dict.fromkeys(self.target.assignment.get(topic_id, ()))
            had = member.assigned.get(topic_id, {})
            for partition in _in_copy(had, had):
                kind = assigned if partition in wanted else revoking
                kind.setdefault(topic_id, {})[partition] = had[partition]
            for partition in wanted:
                if partition in assigned.get(topic_id, ()):
                    continue
                if self._is_free(member, topic_id, partition):
                    free.setdefault(topic_id, []).append(partition)
                else:
                    waits = True
        if revoking and self._owns_any(revoking):
            unrevoked = MemberState.UNREVOKED_PARTITIONS
            moved = member.at(epoch)
            return replace(moved, state=unrevoked, assigned=assigned, revoking=revoking)
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        moved = member.at(self.target.epoch)
        held = self._with_free(member, assigned, free)
        return replace(moved, state=state, assigned=held, revoking=NOTHING_HELD)

    def _with_free(
        self,
        member: Member,
        assigned: Mapping[bytes, Mapping[int, int]],
        free: Mapping[bytes, Sequence[int]],
    ) -> Held:
        """Add free partitions to those that stay assigned, in the order of Kafka's maps."""
        order = HashMapKeys(uuid_hash)
        for topic_id in assigned:
            order.put(topic_id)
        for topic_id in in_map_order(free):
            order.compute(topic_id)
        held: dict[bytes, dict[int, int]] = {}
        for topic_id in order:
            kept, given = assigned.get(topic_id, {}), free.get(topic_id, ())
            former = member.assigned[topic_id] if kept else ()
            partitions = _in_copy(former, (*kept, *given))
            since = {**kept, **dict.fromkeys(given, self.target.epoch)}
            held[topic_id] = {partition: since[partition] for partition in partitions}
        return held

    def _is_free(self, member: Member, topic_id: bytes, partition: int) -> bool:
        # A partition that the member itself is giving up counts as free.
        is_own = partition in member.revoking.get(topic_id, ())
        return is_own or self.partition_epoch(topic_id, partition) == NOBODY


def _in_copy(former: Collection[int], partitions: Iterable[int]) -> Table[int]:
    """Return partitions in the order of Kafka's map of a topic, a copy of the `former` one."""
    capacity = copied_capacity(len(former)) if former else PLACES
    return Table(int_hash, partitions, capacity=capacity)
