"""Our assignor of share groups beside Apache Kafka's own class."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.groups.modern.spec import Assignment, GroupSpec, MemberSpec
from odradek.broker.groups.modern.tables import Table, in_map_order
from odradek.broker.groups.share import simple
from odradek.broker.orders.java import string_hash
from odradek.protocol.wire import encode_uuid
from tests.support.java import ask

ORACLE = Path(__file__).with_name("SimpleAssignorOracle.java")
SEEDS = range(200)
TURNS = 6


@dataclass
class Group:
    """A group that lives on: who comes and goes finds the assignment of those before."""

    is_homogeneous: bool
    counts: dict[bytes, int]
    assignable: dict[bytes, set[int]]
    topics: dict[str, tuple[bytes, ...]] = field(default_factory=dict)
    assignments: dict[str, Assignment] = field(default_factory=dict)

    def assign(self) -> dict[str, Assignment]:
        table = Table(lambda text: string_hash(text) & 0xFFFFFFFF)
        for member_id in self.topics:
            table.add(member_id)
        spec = GroupSpec(
            members={
                member_id: MemberSpec(
                    topics=self.topics[member_id],
                    named_count=len(self.topics[member_id]),
                    instance_id=None,
                    assignment=self.assignments.get(member_id, {}),
                )
                for member_id in table
            },
            is_homogeneous=self.is_homogeneous,
            partition_count=self.counts.__getitem__,
            is_assigned=lambda topic_id, partition: False,
        )
        return dict(simple.assign(spec, lambda topic_id, p: p in self.assignable[topic_id]))

    def line(self) -> dict[str, Any]:
        return {
            "homogeneous": self.is_homogeneous,
            "topics": {encode_uuid(topic_id): count for topic_id, count in self.counts.items()},
            "assignable": {
                encode_uuid(topic_id): sorted(some) for topic_id, some in self.assignable.items()
            },
            "members": [
                {
                    "id": member_id,
                    "topics": [encode_uuid(topic_id) for topic_id in topics],
                    "assignment": {
                        encode_uuid(topic_id): list(partitions)
                        for topic_id, partitions in self.assignments.get(member_id, {}).items()
                    },
                }
                for member_id, topics in self.topics.items()
            ],
        }


def drawn(seed: int) -> Group:
    """Draw a group without assignments."""
    chance = random.Random(seed)
    counts = {chance.randbytes(16): chance.randint(1, 20) for _ in range(chance.randint(1, 8))}
    assignable = {
        topic_id: {p for p in range(count) if chance.random() < 0.9}
        for topic_id, count in counts.items()
    }
    group = Group(chance.random() < 0.5, counts, assignable)
    for _ in range(chance.randint(1, 30)):
        join(group, chance)
    return group


def join(group: Group, chance: random.Random) -> None:
    member_id = chance.choice(["", "m-", "über-"]) + chance.randbytes(8).hex()
    everything = list(group.counts)
    some = chance.sample(everything, chance.randint(1, len(everything)))
    if group.is_homogeneous:
        some = list(next(iter(group.topics.values()), tuple(some)))
    group.topics[member_id] = tuple(some)


def change(group: Group, chance: random.Random) -> None:
    """Let members come and go, subscriptions change, and topics grow."""
    for _ in range(chance.randint(0, 5)):
        if len(group.topics) > 1:
            gone = chance.choice(list(group.topics))
            group.topics.pop(gone)
            group.assignments.pop(gone, None)
    for _ in range(chance.randint(0, 5)):
        join(group, chance)
    if chance.random() < 0.5:
        topic_id = chance.choice(list(group.counts))
        group.counts[topic_id] += chance.randint(1, 20)
        group.assignable[topic_id] = set(range(group.counts[topic_id]))
    some = tuple(chance.sample(list(group.counts), chance.randint(1, len(group.counts))))
    if group.is_homogeneous and chance.random() < 0.3:
        group.topics = dict.fromkeys(group.topics, some)
    elif not group.is_homogeneous:
        group.topics[chance.choice(list(group.topics))] = some


def told(assignments: Mapping[str, Assignment]) -> dict[str, list[Any]]:
    return {
        member_id: [[encode_uuid(topic_id), list(some)] for topic_id, some in assignment.items()]
        for member_id, assignment in assignments.items()
    }




def changed(assignments: dict[str, list[Any]], former: dict[str, list[Any]]) -> dict[str, Any]:
    """Leave out who has what it had: nothing is stored of it, so its order does not matter."""
    return {
        member_id: some
        for member_id, some in assignments.items()
        if sorted(some) != sorted(former.get(member_id, []))
    }


@pytest.mark.kafka
def test_groups_that_change_are_assigned_as_by_kafka() -> None:
    groups = [drawn(seed) for seed in SEEDS]
    for turn in range(TURNS):
        for seed, group in zip(SEEDS, groups, strict=True):
            if turn:
                change(group, random.Random(f"{seed} {turn}"))
        answers = ask(ORACLE, [group.line() for group in groups])
        for seed, group, answer in zip(SEEDS, groups, answers, strict=True):
            ours = group.assign()
            former = told(group.assignments)
            assert changed(told(ours), former) == changed(answer, former), f"{seed=} {turn=}"
            group.assignments = {one: as_replayed(given) for one, given in ours.items()}


def as_replayed(assignment: Assignment) -> Assignment:
    """Put topics in the order of the map that a record is read into."""
    return {topic_id: assignment[topic_id] for topic_id in in_map_order(assignment)}


def test_every_partition_that_can_be_read_is_and_members_share_evenly() -> None:
    for seed in SEEDS:
        group = drawn(seed)
        group.is_homogeneous = True
        group.topics = dict.fromkeys(group.topics, tuple(group.counts))
        for turn in range(TURNS):
            if turn:
                change(group, random.Random(f"{seed} {turn}"))
            group.assignments = group.assign()
            counts: dict[tuple[bytes, int], int] = {}
            for assignment in group.assignments.values():
                for topic_id, partitions in assignment.items():
                    for partition in partitions:
                        key = topic_id, partition
                        counts[key] = counts.get(key, 0) + 1
            read = {topic_id for topics in group.topics.values() for topic_id in topics}
            wanted = {(t, p) for t in read for p in group.assignable[t]}
            assert set(counts) == wanted
            sharing = -(-len(group.topics) // len(wanted)) if wanted else 0
            assert all(count <= sharing for count in counts.values())
