"""How a member comes from what it has to what it is to have, one heartbeat after the other.

First it gives up what it is not to have any more; only when it does not tell those partitions
as its own any more does it go on. Then it is given what is free, and it waits for the rest until
others have given it up. So a partition never has two owners.

Kafka's source: CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from broker.groups.consumer.group import NOBODY
from broker.groups.consumer.member import NOTHING_HELD, Held, Member, MemberState
from broker.groups.modern.spec import Assignment
from broker.groups.modern.tables import PLACES, Table, in_map_order
from broker.orders.hash_map import HashMapKeys
from broker.orders.java import copied_capacity, int_hash, uuid_hash

Owned = Mapping[bytes, Set[int]]
"""Partitions that a member tells as its own."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a member is to come to."""

    epoch: int
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """One step of a member; `owned` is None where the member does not tell."""

    target: Target
    # The ids of the topics that it reads.
    subscribed: Set[bytes]
    has_subscription_changed: bool
    partition_epoch: Callable[[bytes, int], int]
    owned: Owned | None

    def step(self, member: Member) -> Member:
        """Return the member as it is after this step, itself when nothing changes."""
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
        """Take away topics that the member does not read any more, before the next target."""
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
        """Reconcile with the target assignment as far as others let it."""
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
            for partition, since in member.assigned.get(topic_id, {}).items():
                kind = assigned if partition in wanted else revoking
                kind.setdefault(topic_id, {})[partition] = since
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
        """Add what is free to what stays assigned, in the order of Kafka's maps.

        Those of partitions begin as copies of what the member has had.
        """
        order = HashMapKeys(uuid_hash)
        for topic_id in assigned:
            order.put(topic_id)
        for topic_id in in_map_order(free):
            order.compute(topic_id)
        held: dict[bytes, dict[int, int]] = {}
        for topic_id in order:
            kept, given = assigned.get(topic_id, {}), free.get(topic_id, ())
            room = copied_capacity(len(member.assigned[topic_id])) if kept else PLACES
            partitions = Table(int_hash, capacity=room)
            for partition in (*kept, *given):
                partitions.add(partition)
            since = {**kept, **dict.fromkeys(given, self.target.epoch)}
            held[topic_id] = {partition: since[partition] for partition in partitions}
        return held

    def _is_free(self, member: Member, topic_id: bytes, partition: int) -> bool:
        # What the member is itself giving up it can have again.
        is_own = partition in member.revoking.get(topic_id, ())
        return is_own or self.partition_epoch(topic_id, partition) == NOBODY
